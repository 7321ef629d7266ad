"""Which target a process belongs to, which of them F5 is on, and who may have a generation."""

from __future__ import annotations

import asyncio
import json
import time
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.unit.debug.dap_messages import attached, output
from tests.unit.debug.test_loop_close import Agent, Pipes
from tunnelkit.debug.adapter.adapter import Adapter
from tunnelkit.debug.dap.attach_handshake import AttachRequest
from tunnelkit.debug.dap.editor_port import Editor, EditorPort
from tunnelkit.debug.dap.output_limiter import OutputLimits
from tunnelkit.debug.dap.session import DapSession
from tunnelkit.debug.dap.session_facts import EndRequest
from tunnelkit.debug.debug_target import AdapterGone
from tunnelkit.debug.generation import Generation, Reservation
from tunnelkit.debug.loop import DebugLoop
from tunnelkit.debug.loop_agents.base import OneAgent
from tunnelkit.debug.target_identity import TargetIdentity
from tunnelkit.errors import DebugError
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.dap_framing import DapReader, frame
from tunnelkit.mux.loop_records import STDOUT, LoopRecord


def generation(*, ranked: bool = True, only: list[int] | None = None) -> Generation:
    def make() -> asyncio.Task[Adapter]:
        return asyncio.create_task(asyncio.sleep(0, Adapter(0, 0, -1)))

    loop = DebugLoop(OneAgent(Agent()), EditorPort(0), Pipes())
    return Generation(1, make, loop, ranked=ranked, only=only)


def who(rank: int | None, pid: int, *ancestors: int, world: int = 4) -> TargetIdentity:
    return TargetIdentity(pid, "node1", rank, world, ancestors)


def editor() -> Any:
    return Editor.__new__(Editor)


async def test_a_plain_run_is_one_target_and_its_children_are_the_adapters_affair() -> None:
    one = generation(ranked=False)
    assert one.claim is Reservation.NOT_YET
    first = one.target_for(TargetIdentity(10))
    assert first.who.pid == 10
    assert one.target_for(TargetIdentity(11, ancestors=(10, 1))) is first
    first.armed = True
    assert one.claim is Reservation.FREE
    first.editor = editor()
    assert one.claim is Reservation.TAKEN
    first.terminated = True
    assert one.claim is Reservation.SPENT
    await one.close()


async def test_every_rank_is_a_target_and_f5_is_on_the_lowest() -> None:
    one = generation()
    third = one.target_for(who(3, 13))
    third.armed = True
    assert one.primary is None and one.claim is Reservation.NOT_YET
    first = one.target_for(who(0, 10))
    assert one.primary is first and one.claim is Reservation.NOT_YET
    first.armed = True
    assert one.claim is Reservation.FREE
    assert one.world_size == 4
    assert third.who.name == "rank 3 · node1"
    await one.close()


async def test_a_ranks_children_come_to_its_own_adapter() -> None:
    one = generation()
    ranks = [one.target_for(who(rank, 10 + rank)) for rank in range(2)]
    # They carry their parent's rank in the environment they inherited, or none at all.
    assert one.target_for(who(1, 99, 98, 11, 1)) is ranks[1]
    assert one.target_for(who(None, 77, 11, 1)) is ranks[1]
    # One whose parents are gone is known by its rank alone.
    assert one.target_for(who(1, 55, 1)) is ranks[1]
    assert len(one.targets) == 2
    await one.close()


async def test_processes_of_several_pods_may_have_one_pid() -> None:
    """Each pod counts its processes from 1."""
    one = generation()
    ranks = [one.target_for(TargetIdentity(27, f"train-{rank}", rank, 4)) for rank in range(2)]
    assert ranks[0] is not ranks[1]
    child = TargetIdentity(40, "train-1", None, 4, ancestors=(27, 1))
    assert one.target_for(child) is ranks[1]
    await one.close()


async def test_a_node_can_invent_only_so_many_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may cost the laptop a debug adapter."""
    monkeypatch.setattr("tunnelkit.debug.generation.MOST_TARGETS", 3)
    one = generation()
    for rank in range(3):
        one.target_for(who(rank, 10 + rank))
    assert one.target_for(who(3, 13)) is None
    assert len(one.targets) == 3
    there = one.target_for(who(2, 12))
    assert there is one.targets[2], "those that are there stay"
    await one.close()


async def test_ranks_that_their_launcher_starts_again_and_again_are_no_more_ranks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tunnelkit.debug.generation.MOST_TARGETS", 3)
    one = generation()
    for life in range(4):
        for rank in range(3):
            assert one.target_for(who(rank, 10 * life + rank)) is not None
        first, second, third = one.targets
        # The first one's editor has yet to leave; it is no reason to refuse its successor.
        first.terminated = second.terminated = third.terminated = True
    assert [target.who.pid for target in one.targets] == [30, 31, 32]
    first.editor = editor()
    assert one.target_for(who(1, 41)) is not None
    assert one.target_for(who(0, 40)) is None and first in one.targets
    first.editor = None
    assert one.target_for(who(0, 40)) is not None and first not in one.targets
    await one.close()


async def test_the_ranks_beyond_the_limit_run_free_and_the_loop_says_so_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A launcher ends a rank that is hung up on, with exit code 1 and no reason."""
    monkeypatch.setattr("tunnelkit.debug.generation.MOST_TARGETS", 1)
    agent, records = Agent(), list[LoopRecord]()
    loop = DebugLoop(OneAgent(agent), EditorPort(0), Pipes(), on_record=records.append)
    loop.info["ranks"] = {"only": None}
    channels = [agent.mux.open({}) for _ in range(3)]
    sent: list[list[str]] = [[], [], []]
    for rank, channel in enumerate(channels):
        answers(channel, sent[rank])
        identity = {"pid": 10 + rank, "rank": [rank, rank, 3], "node": "node1"}
        loop.debuggee(channel, {"generation": 0, **identity})
    let_run = ["initialize", "attach", "configurationDone", "disconnect"]
    async with asyncio.timeout(5):
        while sent[1:] != [let_run, let_run]:
            await asyncio.sleep(0)
    assert sent[0] == []
    (said,) = records
    assert "1 ranks can be debugged at once, the others run free" in said.event()["text"]
    await loop.close()


def answers(channel: Channel, commands: list[str]) -> None:
    """Be a debuggee that grants all requests; note them."""
    reader = DapReader()

    def write(data: bytes) -> None:
        for body in reader.feed(data):
            request = json.loads(body)
            commands.append(request["command"])
            answer = {"seq": 1, "type": "response", "success": True, "body": {}}
            answer.update(request_seq=request["seq"], command=request["command"])
            channel.received(frame(json.dumps(answer).encode()))

    channel.write_soon = write  # type: ignore[method-assign]


async def test_only_the_rank_of_f5_has_an_adapter_ahead() -> None:
    one = generation()
    ranks = [one.target_for(who(rank, 10 + rank)) for rank in (2, 0, 3, 1)]
    wanted = [target.who.rank for target in ranks if target.adapter.is_wanted]
    assert wanted == [0]
    # The launcher starts it again: F5 is on the new one.
    ranks[1].terminated = True
    assert one.target_for(who(0, 20)).adapter.is_wanted
    await one.close()
    plain = generation(ranked=False)
    assert plain.targets[0].adapter.is_wanted
    await plain.close()


async def test_a_rank_that_the_launcher_starts_anew_is_a_new_target() -> None:
    one = generation()
    old = one.target_for(who(0, 10))
    old.terminated = True
    new = one.target_for(who(0, 20))
    assert new is not old and one.rank(0) is new and one.primary is new
    await one.close()


async def test_a_rank_that_was_killed_and_started_anew_is_a_new_target() -> None:
    """It can't say goodbye: torchrun ends the others by a signal when one has failed."""
    one = generation()
    other, old = (one.target_for(who(rank, 10 + rank)) for rank in range(2))
    channel = Agent().mux.open({})
    carrying = asyncio.create_task(old.carry_debuggee(channel))
    await asyncio.sleep(0)
    assert one.target_for(who(1, 55, 1)) is old, "a child, while it lives"
    channel.received_eof()
    await carrying
    assert not old.over
    new = one.target_for(who(1, 20))
    assert new is not old and one.rank(1) is new and old.over
    assert one.target_for(who(0, 56, 1)) is other, "one that has not come yet"
    await one.close()


@pytest.mark.parametrize("is_wanted", [False, True])
async def test_ranks_that_are_started_anew_while_the_run_seems_over_are_left_alone(
    monkeypatch: pytest.MonkeyPatch, is_wanted: bool
) -> None:
    monkeypatch.setattr("tunnelkit.debug.generation._RANKS_GRACE_S", 0.05)
    one = generation()
    said: list[str] = []
    monkeypatch.setattr(one._host, "note", said.append)

    async def restart(why: str, number: int) -> None:
        said.append(why)

    monkeypatch.setattr(one._host, "restart", restart)
    one.target_for(who(0, 10)).terminated = True
    ending = asyncio.create_task(one._end_later())
    await asyncio.sleep(0)
    if is_wanted:
        one.next_is_wanted()
    one.target_for(who(0, 20))
    await asyncio.wait_for(ending, 5)
    assert said == []
    # Its own end is one.
    one.targets[-1].terminated = True
    one.next_is_wanted()
    await asyncio.wait_for(one._end_later(), 5)
    assert said == ["hung at exit"]
    await one.close()


async def test_with_only_some_ranks_f5_is_on_the_lowest_of_those() -> None:
    one = generation(only=[2, 3])
    one.target_for(who(3, 13)).armed = True
    assert one.primary is None
    second = one.target_for(who(2, 12))
    assert one.primary is second
    await one.close()


async def test_if_the_lowest_never_comes_another_takes_its_place() -> None:
    one = generation()
    second = one.target_for(who(2, 12))
    second.armed = True
    assert not second.adapter.is_wanted
    one._settle()
    assert one.primary is second and one.claim is Reservation.FREE
    assert second.adapter.is_wanted
    # And gives it back.
    first = one.target_for(who(0, 10))
    assert one.primary is first
    await one.close()


async def test_spent_is_one_whose_ranks_are_all_over() -> None:
    one = generation()
    first, second = (one.target_for(who(rank, 10 + rank)) for rank in range(2))
    first.armed = second.armed = True
    first.editor = editor()
    first.terminated = True
    assert one.claim is Reservation.TAKEN and not one.terminated
    second.left = True
    assert one.claim is Reservation.SPENT
    first.terminated, second.left = False, False
    first.left = True
    assert one.claim is Reservation.SPENT
    await one.close()


async def test_a_rank_that_has_ended_is_refused_and_its_run_goes_on() -> None:
    one = generation()
    _, second = (one.target_for(who(rank, 10 + rank)) for rank in range(2))
    channel = Agent().mux.open({})
    carrying = asyncio.create_task(second.carry_debuggee(channel))
    await asyncio.sleep(0)
    assert second.armed and second.asked is not None and not second.adapter.is_wanted
    channel.received_eof()
    await carrying
    with pytest.raises(DebugError, match="rank 1 · node1 has ended") as refusal:
        await second.carry_editor(editor(), None)
    # That one ends the run.
    assert not isinstance(refusal.value, AdapterGone)
    assert not second.adapter.is_wanted and not one.left
    await one.close()


async def test_text_that_an_editor_was_not_given_is_in_the_loops_record() -> None:
    records: list[LoopRecord] = []
    port = EditorPort(0)
    loop = DebugLoop(OneAgent(Agent()), port, Pipes(), on_record=records.append)
    one = loop._run_of(0)
    assert one is not None
    editor = Editor.__new__(Editor)
    editor.session = DapSession(limits=OutputLimits(100, 1, 100))
    attached(editor.session)
    editor.session.from_adapter([output("at step é\n" * 20_000)], 0.0)
    one.targets[0]._heard_adapter(editor)
    said = b"".join(record.payload for record in records)
    assert len(records) > 1 and all(record.kind == STDOUT for record in records)
    assert said.count("at step é\n".encode()) > 19_900
    await loop.close()


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("ends_left_runs", [False, True])
@pytest.mark.parametrize("begins_again", [False, True])
async def test_an_editors_restart_ends_the_run_whatever_becomes_of_a_left_one(
    restarts: bool, ends_left_runs: bool, begins_again: bool
) -> None:
    """Else it comes back to the process with the old code (--post-mortem, a console beside it).

    Where no run follows (`tk attach`), the process lives on."""
    ended: list[int | None] = []

    class Host:
        changed = asyncio.Event()

        async def restart(self, reason: str, number: int | None = None) -> None:
            ended.append(number)
            one.ended = True

    one = generation(ranked=False)
    one._host = host = cast(Any, Host())
    host.ends_left_runs, host.begins_again = ends_left_runs, begins_again
    (target,) = one.targets
    target.armed = target.attached = True
    goodbye = EndRequest("disconnect", restart=restarts)
    facts = SimpleNamespace(goodbye=goodbye)
    target.editor = cast(Any, SimpleNamespace(session=SimpleNamespace(facts=facts)))
    await target._gone(cast(Any, target.editor))
    ends = ends_left_runs or (restarts and begins_again)
    assert ended == ([1] if ends else [])
    assert target.left is ends
    await one.close()


async def test_the_session_of_a_child_that_starts_at_the_end_comes_to_its_parent() -> None:
    """Python waits for it after `terminated`: it is no F5 of the next run."""
    loop = DebugLoop(OneAgent(Agent()), EditorPort(0), Pipes())
    run = loop._runs.get_or_add(0, ranked=False, only=None)
    assert run is not None
    (target,) = run.targets
    target.armed = target.attached = target.terminated = True
    assert run.claim is Reservation.SPENT and loop.with_new_child() is None
    target.children_expected, target._child_at = 1, time.monotonic()
    give = partial(loop._editors._answer, editor(), AttachRequest(), 0.0)
    assert give() is target and not run._next_wanted.is_set()
    # The next one is an F5, and so is one long after a child that no editor came for.
    assert give() is not target and run._next_wanted.is_set()
    target.children_expected, target._child_at = 1, time.monotonic() - 60
    assert give() is not target
    await loop.close()
