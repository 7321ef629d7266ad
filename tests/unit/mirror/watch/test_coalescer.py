"""When a burst of events is over, and what it leaves: with a clock of the test's own."""

from __future__ import annotations

import pytest

from tunnelkit.mirror.watch.coalescer import (
    MANY_EVENTS,
    MANY_PATHS,
    DirtyPaths,
    EventCoalescer,
    EventKind,
)

C = EventKind


class Clocked:
    """A gathering whose time stands still unless it is told to go on."""

    def __init__(self, *, closes: bool = True) -> None:
        self.gathering = EventCoalescer(closes=closes)
        self.now = 100.0

    def note(self, path: str, *changes: EventKind, after_s: float = 0.0) -> bool:
        first = False
        for change in changes:
            self.now += after_s
            first = self.gathering.note(path, change, self.now) or first
        return first

    def waits(self, limit_s: float = 30.0) -> float:
        """How long `settle` would wait from now on, if nothing else came."""
        begin = self.now
        while (rest_s := self.gathering.rest_s(self.now)) > 0:
            self.now += max(rest_s, 1e-4)
            assert self.now - begin < limit_s, "never settles"
        return self.now - begin

    def take(self) -> DirtyPaths:
        return self.gathering.take()[0]


@pytest.fixture
def it() -> Clocked:
    return Clocked()


def test_nothing_is_nothing_to_wait_for(it: Clocked) -> None:
    assert it.waits() == 0
    assert not it.take()


@pytest.mark.parametrize(
    "changes",
    [
        (C.WRITTEN, C.WRITTEN, C.DONE),
        (C.CREATED, C.WRITTEN, C.DONE),
        (C.PLACED,),
        (C.TOUCHED,),
        (C.WRITTEN, C.DONE, C.TOUCHED),
        (C.CREATED, C.GONE),
    ],
)
def test_a_save_that_is_over_waits_for_milliseconds(it: Clocked, changes: list[EventKind]) -> None:
    assert it.note("a", *changes)
    assert it.waits() <= 0.005
    assert it.take() == DirtyPaths(frozenset({"a"}))
    assert it.take() == DirtyPaths()


def test_a_file_that_is_written_is_waited_for(it: Clocked) -> None:
    it.note("a", C.WRITTEN, C.WRITTEN, after_s=0.01)
    assert 0.03 < it.waits() <= 0.06


def test_a_close_ends_the_waiting(it: Clocked) -> None:
    it.note("a", C.WRITTEN)
    it.now += 0.03
    assert it.gathering.rest_s(it.now) > 0
    it.note("a", C.DONE)
    assert it.waits() <= 0.005


def test_attributes_close_nothing(it: Clocked) -> None:
    it.note("a", C.WRITTEN, C.TOUCHED)
    assert it.waits() > 0.03


def test_a_file_that_was_put_away_is_expected_back(it: Clocked) -> None:
    """vim moves the file to its backup and writes a new one: that is no deletion."""
    it.note("a", C.GONE)
    it.note("a~", C.PLACED)
    it.now += 0.02
    assert it.gathering.rest_s(it.now) > 0
    it.note("a", C.CREATED, C.WRITTEN, C.DONE, after_s=0.001)
    it.note("a~", C.GONE)
    assert it.waits() <= 0.005


def test_a_deletion_is_believed_in_the_end(it: Clocked) -> None:
    it.note("a", C.GONE)
    assert 0.05 < it.waits() <= 0.11


def test_a_temporary_that_is_moved_over_the_file(it: Clocked) -> None:
    it.note("tmp", C.CREATED, C.WRITTEN, C.DONE, C.GONE)
    it.note("a", C.PLACED)
    assert it.waits() <= 0.005


def test_many_files_need_more_quiet(it: Clocked) -> None:
    for number in range(30):
        it.note(f"f{number}", C.CREATED, C.DONE, after_s=0.001)
    assert 0.02 < it.waits() <= 0.031


def test_a_burst_without_an_end_is_cut(it: Clocked) -> None:
    begin = it.now
    while it.gathering.rest_s(it.now) > 0 or it.now == begin:
        it.note(f"f{it.now}", C.CREATED, after_s=0.005)
        assert it.now - begin < 5
    assert 0.9 < it.now - begin < 1.1


def test_few_files_without_an_end_are_cut_earlier(it: Clocked) -> None:
    begin = it.now
    while it.gathering.rest_s(it.now) > 0 or it.now == begin:
        it.note("log", C.WRITTEN, C.DONE, after_s=0.0005)
        assert it.now - begin < 5
    assert it.now - begin < 0.3


def test_an_endless_writer_does_not_hold_up_others(it: Clocked) -> None:
    it.note("log", C.WRITTEN)
    it.waits()
    it.gathering.settled()
    it.take()
    it.note("log", C.WRITTEN)
    it.note("a", C.WRITTEN, C.DONE)
    it.note("log", C.WRITTEN)
    assert it.waits() <= 0.005
    assert it.take().paths == {"log", "a"}


def test_an_endless_writer_alone_counts_a_few_times_a_second(it: Clocked) -> None:
    it.note("log", C.WRITTEN)
    it.waits()
    it.gathering.settled()
    it.take()
    it.note("log", C.WRITTEN)
    assert 0.2 < it.waits() < 0.3
    it.gathering.settled()
    it.take()
    it.note("log", C.DONE)
    assert it.waits() <= 0.005


def test_where_closes_are_not_told_quiet_must_do() -> None:
    it = Clocked(closes=False)
    it.note("a", C.WRITTEN)
    assert 0.015 < it.waits() <= 0.025


def test_it_wakes_once_per_burst(it: Clocked) -> None:
    assert it.note("a", C.WRITTEN)
    assert not it.note("b", C.DONE)
    it.gathering.settled()
    assert it.note("c", C.DONE)
    assert it.take().paths == {"a", "b", "c"}


def test_a_take_in_the_middle_of_a_burst_arms_it_again(it: Clocked) -> None:
    assert it.note("a", C.WRITTEN)
    it.take()
    assert it.note("a", C.DONE)


def test_a_directory_speaks_for_what_is_in_it(it: Clocked) -> None:
    it.note("d", C.TREE)
    for number in range(2 * MANY_PATHS):
        it.note(f"d/e/{number}", C.CREATED)
    it.note("dd/f", C.DONE)
    assert it.take() == DirtyPaths(frozenset({"d", "dd/f"}))


def test_new_directories_are_told_apart_and_the_second_look_is_the_last(it: Clocked) -> None:
    it.note("d", C.TREE)
    it.note("e", C.TREE_GONE)
    assert it.gathering.take()[1] == {"d"}
    it.note("d", C.AGAIN)
    assert it.gathering.take() == (DirtyPaths(frozenset({"d"})), frozenset())


def test_many_paths_are_everything(it: Clocked) -> None:
    for number in range(MANY_PATHS + 1):
        it.note(f"f{number}", C.DONE)
    assert it.take() == DirtyPaths(everything="many")
    assert it.take() == DirtyPaths()


def test_a_stretch_of_ignored_events_is_a_thinkable_loss(it: Clocked) -> None:
    woken = [it.gathering.count(it.now) for _ in range(MANY_EVENTS)]
    assert woken[-1] and not any(woken[:-1])
    assert it.take() == DirtyPaths(everything="many")


def test_a_trickle_of_ignored_events_is_not(it: Clocked) -> None:
    for _ in range(5 * MANY_EVENTS):
        it.now += 0.01
        assert not it.gathering.count(it.now)


def test_the_first_reason_stays(it: Clocked) -> None:
    assert it.gathering.all("overflow", it.now)
    assert not it.gathering.all("sleep", it.now)
    it.note("a", C.DONE)
    assert it.waits() <= 0.031
    assert it.take() == DirtyPaths(everything="overflow")


def test_putting_off_begins_the_burst_anew(it: Clocked) -> None:
    it.note("a", C.DONE)
    it.now += 5
    it.gathering.put_off(it.now)
    assert 0.02 < it.waits() <= 0.031
