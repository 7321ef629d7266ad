"""Who has not reached a collective: the late are found, and nobody else is accused."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

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
    TORCH,
    own,
    sample,
    within,
    world,
)
from tunnelkit.debug.ranks.arrivals import Arrival, LateRank, arrivals
from tunnelkit.debug.ranks.sample import GroupProgress, RankSample, RankState, StackFrame

REDUCES = within("all_reduce")
FUNCTIONAL = f"{TORCH}/distributed/_functional_collectives.py"
BARRIER = within("barrier", 95)
SILENT, ENDED = RankState.SILENT, RankState.ENDED
#: The user waits for an asynchronous collective: torch's Work.wait is native.
WAITS_FOR_WORK = (MAIN, own("train.py", 99, "finish"))


def twice(*ranks: RankSample) -> list[Arrival]:
    """What is found if nothing changes between the samples."""
    return arrivals(ranks, ranks, ROOTS)


def hang(late: RankSample) -> list[RankSample]:
    """Four ranks, the last of which is `late`."""
    return [*(sample(rank, REDUCES, world(1204)) for rank in range(3)), late]


def test_one_of_64_has_not_come() -> None:
    others = [rank for rank in range(64) if rank != 47]
    found = twice(
        *(sample(rank, REDUCES, world(1204)) for rank in others), sample(47, LOADS, world(1203))
    )
    assert found == [
        Arrival(
            group="world",
            members=tuple(range(64)),
            operation="all_reduce",
            sequence=1204,
            arrived=tuple(others),
            waiting=tuple(others),
            late=(LateRank(47, 1),),
            also_behind=(),
            silent=(),
            ended=(),
        )
    ]


def test_one_that_has_not_dialled_in_has_not_come() -> None:
    ranks = [sample(rank, REDUCES, world(5)) for rank in range(3)]
    assert twice(*ranks) == []
    (found,) = arrivals(ranks, ranks, ROOTS, absent=[3])
    assert (found.members, found.waiting, found.absent) == ((0, 1, 2, 3), (0, 1, 2), (3,))
    assert found.late == () and found.sequence == 5


def test_a_rank_that_the_debugger_holds_is_late_for_that_reason() -> None:
    late = sample(3, LOADS, world(1203), state=RankState.STOPPED)
    (found,) = twice(*hang(late))
    assert found.late == (LateRank(3, 1, RankState.STOPPED),)


def test_the_flight_recorder_names_the_operation() -> None:
    stack = (*within("all_gather_object")[:-1], StackFrame(C10D, 5, "all_gather"))
    ranks = [
        sample(0, stack, world(4, "")),
        sample(1, stack, world(4, "_all_gather_base")),
        sample(2, LOADS, world(3, "barrier")),
    ]
    (found,) = twice(*ranks)
    assert found.operation == "_all_gather_base"
    (found,) = twice(ranks[0], ranks[2])
    assert found.operation == "all_gather"


def test_those_who_did_not_answer_and_those_who_ended_are_apart() -> None:
    ranks = [
        sample(0, REDUCES, world(4)),
        sample(1, LOADS, world(3)),
        sample(2, (), state=SILENT),
        sample(3, (), state=ENDED),
    ]
    (found,) = twice(*ranks)
    assert (found.late, found.silent, found.ended) == ((LateRank(1, 1),), (2,), (3,))
    (found,) = twice(ranks[0], ranks[2])
    assert (found.late, found.silent, found.ended) == ((), (2,), ())


#: Ranks that wait although nobody is late: each row is one that must not be accused.
INNOCENT: dict[str, list[RankSample]] = {
    "all have arrived": hang(sample(3, REDUCES, world(1204))),
    "all have arrived, one computes beside an asynchronous collective": hang(
        sample(3, COMPUTES, world(1204))
    ),
    "one is past it, asynchronously": hang(sample(3, COMPUTES, world(1206))),
    "nobody waits: NCCL's collectives are asynchronous": [
        sample(0, COMPUTES, world(1204)),
        sample(1, COMPUTES, world(1203)),
    ],
    "all wait in an earlier one than the newest": [
        sample(0, COMPUTES, world(9)),
        sample(1, REDUCES, world(7)),
        sample(2, REDUCES, world(7)),
    ],
    "it has entered torch.distributed and not begun": hang(
        sample(
            3,
            (*LOADS, StackFrame(f"{TORCH}/distributed/c10d_logger.py", 83, "wrapper")),
            world(1203),
        )
    ),
    "the library works below torch.distributed": hang(
        sample(
            3,
            (*REDUCES, StackFrame(f"{TORCH}/_ops.py", 9, "a"), StackFrame("/x/json.py", 1, "b")),
            world(1203),
        )
    ),
    "it answers without a stack": hang(sample(3, (), world(1203))),
    "its group is unknown": hang(sample(3, LOADS)),
    "it waits for a debugger": hang(sample(3, (), state=RankState.WAITING)),
    "it is in another group": hang(sample(3, LOADS, GroupProgress("tp", (3, 9), 5))),
    "subgroups have numbers of their own": [
        sample(0, REDUCES, GroupProgress("tp", (0, 1), 9)),
        sample(1, REDUCES, GroupProgress("tp", (0, 1), 9)),
        sample(2, LOADS, GroupProgress("tp", (2, 3), 4)),
        sample(3, LOADS, GroupProgress("tp", (2, 3), 4)),
    ],
    # 0 has sent its broadcast in the world, and waits for 1 in tp, which has come.
    "the wait is in another group, where all are": [
        sample(0, REDUCES, world(5, "broadcast"), GroupProgress("tp", (0, 1), 9, "all_reduce")),
        sample(1, REDUCES, world(5, "broadcast"), GroupProgress("tp", (0, 1), 9, "all_reduce")),
        sample(2, LOADS, world(4, "all_reduce")),
    ],
    # It may be either that 0 waits in.
    "two groups explain the wait": [
        sample(0, REDUCES, world(5), GroupProgress("tp", (0, 1), 9)),
        sample(1, LOADS, world(5), GroupProgress("tp", (0, 1), 8)),
        sample(2, LOADS, world(4)),
    ],
    "gloo counts sends, so that numbers differ": [
        sample(0, REDUCES, world(25)),
        sample(1, within("recv"), world(31)),
        sample(2, LOADS, world(20)),
    ],
    "the recorder has a send": [sample(0, REDUCES, world(25)), sample(1, LOADS, world(9, "send"))],
    # It may be the one before, which both have begun.
    "it waits for one of its asynchronous collectives": [
        sample(0, (MAIN, StackFrame(FUNCTIONAL, 7, "wait_tensor")), world(5)),
        sample(1, LOADS, world(4)),
    ],
    "a wait for a message is no collective": [
        sample(0, within("recv"), world(5)),
        sample(1, LOADS, world(4)),
    ],
    "the waiting rank is held by the debugger": [
        sample(0, REDUCES, world(5), state=RankState.STOPPED),
        sample(1, LOADS, world(4)),
    ],
    "the program's own function has the name": [
        sample(0, (MAIN, own("train.py", 9, "all_reduce")), world(5)),
        sample(1, LOADS, world(4)),
    ],
    "FSDP's forward is in torch.distributed, and no collective": [
        sample(0, (MAIN, StackFrame(f"{TORCH}/distributed/fsdp/api.py", 9, "forward")), world(5)),
        sample(1, LOADS, world(4)),
    ],
}


@pytest.mark.parametrize("ranks", INNOCENT.values(), ids=INNOCENT.keys())
def test_nobody_is_accused(ranks: list[RankSample]) -> None:
    assert [one.late for one in twice(*ranks)] == []


def test_a_rank_that_waits_in_another_group_is_not_late() -> None:
    """46 waits for 47 among two: 47 alone keeps the world waiting."""
    pair = (46, 47)
    found = twice(
        *(sample(rank, REDUCES, world(5)) for rank in range(46)),
        sample(46, REDUCES, world(4), GroupProgress("tp", pair, 11)),
        sample(47, LOADS, world(4), GroupProgress("tp", pair, 10)),
    )
    assert [(one.group, one.late, len(one.waiting)) for one in found] == [
        ("tp", (LateRank(47, 1),), 1),
        ("world", (LateRank(47, 1),), 46),
    ]


def test_those_with_a_late_rank_come_first() -> None:
    found = twice(
        sample(0, REDUCES, GroupProgress("a", (0, 1), 2)),
        sample(1, (), state=SILENT),
        sample(2, REDUCES, GroupProgress("b", (2, 3), 2)),
        sample(3, LOADS, GroupProgress("b", (2, 3), 1)),
        sample(4, REDUCES, GroupProgress("c", (4, 5), 2)),
        sample(5, LOADS, GroupProgress("c", (4, 5), 1)),
    )
    assert [one.group for one in found] == ["b", "c", "a"]


def test_an_asynchronous_collective_is_waited_in_if_the_flight_recorder_has_it_open() -> None:
    """NCCL: the stack stands where the GPU is waited for."""
    waits = (MAIN, own("train.py", 90, "step"))
    open_ones = [sample(rank, waits, world(7, "all_reduce")) for rank in range(3)]
    [found] = twice(*open_ones, sample(3, LOADS, world(6)))
    assert (found.operation, found.waiting, found.late) == (
        "all_reduce",
        (0, 1, 2),
        (LateRank(3, 1),),
    )
    # One that moves on is not waiting.
    moved = [
        dataclasses.replace(one, instruction=one.instruction + 2, cpu_s=9.0) for one in open_ones
    ]
    late = sample(3, LOADS, world(6))
    assert arrivals([*open_ones, late], [*moved, late], ROOTS) == []


def test_names_tell_two_groups_apart() -> None:
    tp = (0, 1)
    found = twice(
        sample(0, REDUCES, world(5, "broadcast"), GroupProgress("tp", tp, 9, "all_reduce")),
        sample(1, LOADS, world(5, "broadcast"), GroupProgress("tp", tp, 8, "barrier")),
        sample(2, COMPUTES, world(4, "barrier")),
    )
    assert [(one.group, one.late) for one in found] == [("tp", (LateRank(1, 1),))]


def test_groups_of_one_name_and_other_members_are_others() -> None:
    found = twice(
        sample(0, REDUCES, GroupProgress("dp", (0, 1), 9)),
        sample(1, LOADS, GroupProgress("dp", (0, 1), 8)),
        sample(2, COMPUTES, GroupProgress("dp", (2, 3), 2)),
        sample(3, COMPUTES, GroupProgress("dp", (2, 3), 1)),
    )
    assert [(one.members, one.late) for one in found] == [((0, 1), (LateRank(1, 1),))]


def test_a_rank_that_may_wait_for_the_late_one_is_apart() -> None:
    found = twice(
        sample(0, BARRIER, world(6)),
        sample(1, BARRIER, world(6)),
        sample(2, WAITS_FOR_WORK, world(5)),
        sample(3, LOADS, world(4)),
    )
    assert [(one.late, one.also_behind) for one in found] == [
        ((LateRank(3, 2),), (LateRank(2, 1),))
    ]
    # The one with the lowest number is in another group's collective: the other may wait for it.
    assert not twice(
        sample(0, BARRIER, world(6)),
        sample(2, WAITS_FOR_WORK, world(5)),
        sample(3, REDUCES, world(4)),
    )


@pytest.mark.parametrize(
    ("then", "now"),
    [
        # On its way: its number has grown, in this group or another.
        (sample(3, LOADS, world(1202)), sample(3, LOADS, world(1203))),
        (
            sample(3, LOADS, world(1203), GroupProgress("tp", (3, 2), 7)),
            sample(3, LOADS, world(1203), GroupProgress("tp", (3, 2), 8)),
        ),
        # It came in between, or it was there the first time.
        (sample(3, LOADS, world(1203)), sample(3, REDUCES, world(1204))),
        (sample(3, REDUCES, world(1203)), sample(3, LOADS, world(1203))),
        (sample(3, LOADS, world(1203)), sample(3, REDUCES, world(1203))),
        # Another process: the launcher has restarted it.
        (sample(3, LOADS, world(1203)), sample(3, LOADS, world(1203), pid=7)),
        # It did not answer the first time.
        (sample(3, (), state=SILENT), sample(3, LOADS, world(1203))),
    ],
)
def test_a_rank_that_changes_between_the_samples_is_not_late(
    then: RankSample, now: RankSample
) -> None:
    assert arrivals(hang(then), hang(now), ROOTS) == []


def step(numbers: Iterable[int], stacks: Iterable[tuple[StackFrame, ...]]) -> list[RankSample]:
    return [
        sample(rank, frames, world(number))
        for rank, (number, frames) in enumerate(zip(numbers, stacks, strict=True))
    ]


def test_a_spread_that_differs_is_normal() -> None:
    first = step([5, 5, 4], [REDUCES, REDUCES, LOADS])
    second = step([5, 6, 6], [LOADS, REDUCES, REDUCES])
    assert arrivals(first, second, ROOTS) == []


@given(st.data())
def test_a_job_whose_numbers_grow_has_nobody_late(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 6))
    stacks = st.sampled_from([REDUCES, LOADS, COMPUTES, BARRIER, WAITS_FOR_WORK])
    numbers = data.draw(st.lists(st.integers(1, 4), min_size=count, max_size=count))
    grown = [number + data.draw(st.integers(1, 3)) for number in numbers]
    first, second = (
        step(each, data.draw(st.lists(stacks, min_size=count, max_size=count)))
        for each in (numbers, grown)
    )
    assert arrivals(first, second, ROOTS) == []


@given(
    st.lists(st.sampled_from(["loads", "comes", "waits"]), min_size=1, max_size=7), st.booleans()
)
def test_in_a_job_in_step_those_who_load_both_times_are_late(
    ranks: list[str], same_round: bool
) -> None:
    """comes: it begins the collective between the samples."""
    first = step(
        (5 if one == "waits" else 4 for one in ranks),
        (REDUCES if one == "waits" else LOADS for one in ranks),
    )
    begin = 4 if same_round else 5
    second = step(
        (begin if one == "loads" else begin + 1 for one in ranks),
        (LOADS if one == "loads" else REDUCES for one in ranks),
    )
    # Who waits the first time is the witness.
    hangs = same_round and "waits" in ranks
    late = [LateRank(rank, 1) for rank, one in enumerate(ranks) if hangs and one == "loads"]
    assert [one for each in arrivals(first, second, ROOTS) for one in each.late] == late


def test_ranks_that_were_not_asked_are_no_part_of_it() -> None:
    group = GroupProgress("dp", (0, 1, 2, 3), 5)
    (found,) = twice(
        sample(0, REDUCES, group), sample(1, LOADS, dataclasses.replace(group, sequence=4))
    )
    assert (found.arrived, found.late, found.silent) == ((0,), (LateRank(1, 1),), ())


@given(rank_samples.samples, rank_samples.samples, st.booleans())
def test_any_samples_are_taken(
    first: list[RankSample], second: list[RankSample], same: bool
) -> None:
    before = {one.rank: one for one in first}
    newest = before if same else {one.rank: one for one in second}
    one_order = arrivals(list(before.values()), list(newest.values()), ROOTS)
    other = arrivals(list(before.values())[::-1], list(newest.values())[::-1], ROOTS)
    assert one_order == other
    for found in one_order:
        late = {one.rank for one in (*found.late, *found.also_behind)}
        assert found.waiting and set(found.waiting) <= set(found.arrived)
        assert late or found.silent or found.ended
        assert not late & {*found.arrived, *found.silent, *found.ended}
        assert all(one.behind > 0 for one in found.late)
        for rank in late:
            assert newest[rank].frames[-1].file != C10D
