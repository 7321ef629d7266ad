"""Normal forms of stacks, classes of ranks, and since when a rank has not moved."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.debug.ranks import rank_samples
from tests.unit.debug.ranks.rank_samples import (
    C10D,
    COMPUTES,
    LOADS,
    MAIN,
    ROOTS,
    STEP,
    TORCH,
    own,
    sample,
    within,
    world,
)
from tunnelkit.debug.ranks.sample import ProcessState, RankState, StackFrame
from tunnelkit.debug.ranks.stacks import (
    Activity,
    MovementHistory,
    class_name,
    classify,
    normal_form,
)

FUNCTIONAL = f"{TORCH}/distributed/_functional_collectives.py"
LIBRARY = "/opt/env/lib/python3.11/site-packages/lib"


def lib(function: str, line: int = 5, file: str = "a.py") -> StackFrame:
    return StackFrame(f"{LIBRARY}/{file}", line, function)


def words(frames: tuple[StackFrame, ...]) -> list[str]:
    return [
        f"{one.file.rpartition('/')[2]}:{one.line} {one.function}" if one.line else one.function
        for one in normal_form(frames, ROOTS)
    ]


BEGIN = ["train.py:70 main", "train.py:88 step"]


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        ((MAIN, STEP), BEGIN),
        ((MAIN, STEP, lib("poll", 7), lib("sleep", 8)), [*BEGIN, "poll"]),
        # A decorator's wrapper is no call of the user's.
        (within("all_reduce"), [*BEGIN, "all_reduce"]),
        ((MAIN, STEP, lib("wrapper")), [*BEGIN, "wrapper"]),
        # One call of a trainer is all that a program has of its own: the collective tells more.
        (
            (MAIN, lib("fit"), lib("loop"), StackFrame(C10D, 5, "barrier")),
            ["train.py:70 main", "fit", "barrier"],
        ),
        # A tensor of a functional collective is used.
        (
            (
                MAIN,
                StackFrame(FUNCTIONAL, 9, "__torch_dispatch__"),
                StackFrame(FUNCTIONAL, 8, "unwrap"),
                StackFrame(FUNCTIONAL, 7, "wait_tensor"),
                StackFrame(f"{TORCH}/_ops.py", 6, "__call__"),
            ),
            ["train.py:70 main", "unwrap", "wait_tensor"],
        ),
        # The library between two frames of the project does not count.
        ((MAIN, lib("_call_impl"), STEP), BEGIN),
        # An environment inside the project is a library.
        (
            (MAIN, own(".venv/lib/python3.11/site-packages/q.py", 3, "get")),
            ["train.py:70 main", "get"],
        ),
        # Launchers.
        ((StackFrame("<frozen runpy>", 88, "_run_code"), MAIN, STEP), BEGIN),
        (
            (
                StackFrame("<string>", 1, "<module>"),
                StackFrame("/usr/lib/python3.11/multiprocessing/spawn.py", 122, "spawn_main"),
                StackFrame("/usr/lib/python3.11/multiprocessing/process.py", 314, "_bootstrap"),
                StackFrame(f"{TORCH}/multiprocessing/spawn.py", 75, "_wrap"),
                MAIN,
            ),
            ["train.py:70 main"],
        ),
        (
            (StackFrame("/opt/env/bin/torchrun", 8, "<module>"), lib("a"), lib("b")),
            ["a", "b"],
        ),
        # The debugger's are nowhere.
        (
            (
                StackFrame("/opt/debugpy/launcher/__main__.py", 1, "main"),
                MAIN,
                STEP,
                StackFrame("/opt/debugpy/_vendored/pydevd/pydevd.py", 2197, "do_wait_suspend"),
            ),
            BEGIN,
        ),
        # Nothing is the project's: the innermost, by function.
        ((lib("a"), lib("b"), lib("c"), lib("d", 99)), ["b", "c", "d"]),
        # The program has not begun.
        ((StackFrame("<frozen runpy>", 1, "_run_module"),), ["_run_module"]),
        # The user's own `python -c`.
        ((StackFrame("<string>", 3, "<module>"),), ["<module>"]),
        ((), []),
    ],
)
def test_a_normal_form(frames: tuple[StackFrame, ...], expected: list[str]) -> None:
    assert words(frames) == expected


def test_a_project_that_is_itself_installed_among_libraries() -> None:
    frames = (StackFrame(f"{LIBRARY}/a.py", 5, "a"), StackFrame("/usr/b.py", 6, "b"))
    assert [one.line for one in normal_form(frames, [LIBRARY])] == [5, 0]


@given(rank_samples.frames, st.sampled_from([ROOTS, [], ["/"], ["", "/opt/"]]))
def test_a_normal_form_is_its_own_normal_form(
    frames: tuple[StackFrame, ...], roots: list[str]
) -> None:
    form = normal_form(frames, roots)
    assert normal_form(form, roots) == form
    assert form or all("debugpy" in one.file for one in frames)


def test_ranks_that_poll_in_a_library_are_one_class() -> None:
    polls = [sample(rank, (MAIN, STEP, lib("get"), lib("poll", rank % 20))) for rank in range(64)]
    assert len(classify(polls, None, ROOTS)) == 1


def test_classes_are_named_by_their_lowest_rank() -> None:
    ranks = [sample(rank, LOADS if rank == 47 else within("all_reduce")) for rank in range(64)]
    most, late = classify(ranks, ranks, ROOTS)
    assert (most.name, most.ranks) == ("A", (*range(47), *range(48, 64)))
    assert most.nodes == tuple(f"node{number}" for number in range(1, 9))
    assert (late.name, late.ranks, late.nodes) == ("B", (47,), ("node6",))
    assert late.sample == ranks[47] and late.form == LOADS
    assert most.activity is late.activity is Activity.WAITS


@pytest.mark.parametrize(
    ("index", "name"), [(0, "A"), (25, "Z"), (26, "AA"), (51, "AZ"), (52, "BA"), (702, "AAA")]
)
def test_names_of_classes(index: int, name: str) -> None:
    assert class_name(index) == name


REDUCES = within("all_reduce")
POLLS = (*REDUCES, StackFrame(f"{TORCH}/_ops.py", 9, "poll"))


@pytest.mark.parametrize(
    ("then", "now", "activity"),
    [
        (sample(0), sample(0), Activity.WAITS),
        (sample(0), sample(0, cpu_s=1.02), Activity.WAITS),
        (sample(0), sample(0, cpu_s=1.98), Activity.SPINS),
        (sample(0), sample(0, instruction=12), Activity.MOVES),
        (sample(0), sample(0, LOADS), Activity.MOVES),
        (sample(0, (*COMPUTES, lib("a"))), sample(0, (*COMPUTES, lib("b"))), Activity.MOVES),
        # Another process has the number.
        (sample(0), sample(0, pid=5), Activity.MOVES),
        # The same line, one step further.
        (sample(0, REDUCES, world(4)), sample(0, REDUCES, world(5)), Activity.MOVES),
        # A collective's own polling is no movement.
        (sample(0, REDUCES, world(4)), sample(0, POLLS, world(4)), Activity.WAITS),
        (sample(0, REDUCES, world(4)), sample(0, POLLS, world(4), cpu_s=2), Activity.SPINS),
        (sample(0, REDUCES), sample(0, POLLS), Activity.MOVES),
        (sample(0, cpu_s=None), sample(0), Activity.UNKNOWN),
        (sample(0), sample(0, cpu_s=float("nan")), Activity.UNKNOWN),
        (sample(0, ()), sample(0, ()), Activity.UNKNOWN),
        (sample(0, (), state=RankState.SILENT), sample(0), Activity.UNKNOWN),
        (sample(0), sample(0, state=RankState.STOPPED), Activity.STOPPED),
        (sample(0, ()), sample(0, (), state=RankState.WAITING), Activity.WAITING),
        (sample(0), sample(0, (), state=RankState.ENDED), Activity.ENDED),
    ],
)
def test_what_two_samples_tell(
    then: rank_samples.RankSample, now: rank_samples.RankSample, activity: Activity
) -> None:
    (found,) = classify([then], [now], ROOTS)
    assert found.activity is activity and found.state is now.state


@pytest.mark.parametrize(
    ("letter", "activity"),
    [
        ("R", Activity.BUSY_NATIVE),
        ("D", Activity.BLOCKED),
        ("T", Activity.SIGNAL_STOPPED),
        ("t", Activity.SIGNAL_STOPPED),
        ("Z", Activity.ENDED),
        ("S", Activity.ASLEEP),
        ("", Activity.UNKNOWN),
    ],
)
def test_what_proc_tells_of_silent_ranks(letter: str, activity: Activity) -> None:
    process = ProcessState(letter) if letter else None
    silent = sample(0, (), state=RankState.SILENT, process=process)
    assert [one.activity for one in classify([silent], None, ROOTS)] == [activity]


@pytest.mark.parametrize(
    ("letter", "cpu_s", "activity"),
    [
        ("S", 1.0, Activity.SLEEPS),
        ("S", 1.5, Activity.SPINS),
        ("S", None, Activity.SLEEPS),
        ("R", 1.9, Activity.SPINS),
        # It waits for a CPU, or was just woken.
        ("R", 1.0, Activity.UNKNOWN),
        ("D", 1.9, Activity.BLOCKED),
        ("T", 1.0, Activity.SIGNAL_STOPPED),
        ("Z", 1.0, Activity.ENDED),
        ("", None, Activity.UNKNOWN),
    ],
)
def test_what_proc_tells_of_ranks_without_a_debugger(
    letter: str, cpu_s: float | None, activity: Activity
) -> None:
    def seen(cpu_s: float | None) -> rank_samples.RankSample:
        process = ProcessState(letter) if letter else None
        return sample(0, (), state=RankState.UNDEBUGGED, process=process, cpu_s=cpu_s)

    (found,) = classify([seen(1.0)], [seen(cpu_s)], ROOTS)
    assert found.activity is activity


@pytest.mark.parametrize(
    ("letter", "frames", "cpu_s", "activity"),
    [
        ("S", (MAIN,), 1.0, Activity.WAITS),
        ("S", (MAIN,), 1.9, Activity.SPINS),
        ("R", (MAIN, STEP), 1.9, Activity.MOVES),
        ("D", (MAIN,), 1.0, Activity.BLOCKED),
    ],
)
def test_a_stack_of_py_spy_is_compared_as_others_are(
    letter: str, frames: tuple[rank_samples.StackFrame, ...], cpu_s: float, activity: Activity
) -> None:
    process = ProcessState(letter)
    then = sample(0, (MAIN,), state=RankState.UNDEBUGGED, process=process)
    now = sample(0, frames, state=RankState.UNDEBUGGED, process=process, cpu_s=cpu_s)
    (found,) = classify([then], [now], ROOTS)
    assert found.activity is activity and found.form


def test_silent_ranks_are_apart_by_what_they_wait_in() -> None:
    ranks = [
        sample(rank, (), state=RankState.SILENT, process=ProcessState("D", wchan))
        for rank, wchan in enumerate(["nfs_wait", "io_schedule", "nfs_wait"])
    ]
    assert [one.ranks for one in classify(ranks, None, ROOTS)] == [(0, 2), (1,)]


def test_one_sample_does_not_tell_who_waits() -> None:
    (found,) = classify([sample(0)], None, ROOTS)
    assert found.activity is Activity.UNKNOWN and found.cpu_share is None


def test_the_rank_that_computes_where_others_wait_is_a_class() -> None:
    """`loss.backward()` is all that the user's line shows of both."""
    stack = (MAIN, lib("backward"), lib("run"))
    then = [sample(rank, stack) for rank in range(8)]
    now = [sample(rank, stack, cpu_s=1.95 if rank == 3 else 1.01) for rank in range(8)]
    assert [(one.name, one.ranks, one.activity) for one in classify(then, now, ROOTS)] == [
        ("A", (0, 1, 2, 4, 5, 6, 7), Activity.WAITS),
        ("B", (3,), Activity.SPINS),
    ]


def test_a_rank_that_was_sampled_once_only_is_shown() -> None:
    found = classify([sample(0), sample(1)], [sample(0)], ROOTS)
    assert [(one.ranks, one.activity) for one in found] == [
        ((0,), Activity.WAITS),
        ((1,), Activity.UNKNOWN),
    ]


@given(rank_samples.samples, st.one_of(st.none(), rank_samples.samples), st.floats())
def test_each_rank_is_in_one_class(
    first: list[rank_samples.RankSample],
    second: list[rank_samples.RankSample] | None,
    seconds: float,
) -> None:
    found = classify(first, second, ROOTS, seconds)
    ranks = [rank for one in found for rank in one.ranks]
    assert sorted(ranks) == sorted({one.rank for one in [*first, *(second or [])]})
    assert [one.ranks[0] for one in found] == sorted(one.ranks[0] for one in found)
    assert all(list(one.ranks) == sorted(one.ranks) for one in found)
    assert len({one.name for one in found}) == len(found)
    for one in found:
        assert one.sample.rank == one.ranks[0]
        assert normal_form(one.sample.frames, ROOTS) == one.form


@given(rank_samples.samples, rank_samples.samples, st.randoms())
def test_the_order_of_samples_does_not_matter(
    first: list[rank_samples.RankSample], second: list[rank_samples.RankSample], random: object
) -> None:
    one, two = ({each.rank: each for each in group} for group in (first, second))
    expected = classify(list(one.values()), list(two.values()), ROOTS)
    again = [list(one.values()), list(two.values())]
    for group in again:
        random.shuffle(group)
    found = classify(again[0], again[1], ROOTS)
    # nan is not equal to itself.
    assert repr([dataclasses.replace(each, cpu_share=None) for each in found]) == repr(
        [dataclasses.replace(each, cpu_share=None) for each in expected]
    )


def test_since_when_a_rank_waits() -> None:
    history = MovementHistory(ROOTS)
    assert history.since(0) is None
    history.feed(10, [sample(0, LOADS)])
    for time_s in (12, 14, 16):
        history.feed(time_s, [sample(0, cpu_s=1 + time_s / 1000)])
    assert history.since(0) == 12
    # It begins to compute in the same native call.
    history.feed(18, [sample(0, cpu_s=3)])
    assert history.since(0) == 16
    history.feed(20, [sample(0, cpu_s=5)])
    assert history.since(0) == 16
    history.feed(22, [sample(0, cpu_s=7, instruction=11)])
    assert history.since(0) == 22
    history.feed(24, [sample(0, (), state=RankState.SILENT)])
    history.feed(26, [sample(0, (), state=RankState.SILENT)])
    assert history.since(0) == 24
    assert history.since(1) is None


def test_a_rank_that_loops_over_a_collective_has_moved() -> None:
    history = MovementHistory(ROOTS)
    for time_s in range(5):
        history.feed(time_s, [sample(0, REDUCES, world(time_s)), sample(1, REDUCES, world(2))])
    assert (history.since(0), history.since(1)) == (4, 0)


@given(st.lists(st.tuples(st.floats(), rank_samples.samples), max_size=5))
def test_any_history_has_an_entry_a_rank(
    fed: list[tuple[float, list[rank_samples.RankSample]]],
) -> None:
    history = MovementHistory(ROOTS)
    for time_s, ranks in fed:
        history.feed(time_s, ranks)
    known = {one.rank for _, ranks in fed for one in ranks}
    assert {rank for rank in range(9) if history.since(rank) is not None} == known
    assert len(history._stays) == len(known)
