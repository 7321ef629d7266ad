"""`tk up` far from the cluster: in by the scheduler at once, and the wire moves to ssh later."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from tests.support.tkrig import PROGRAM, Project, eventually, line_of
from tunnelkit import lab as tk_lab
from tunnelkit.lab.layout import Layout

STOP = line_of(PROGRAM, "total += step")
#: Far enough that the machine's own speed decides nothing.
RTT_MS = 400.0


@pytest.fixture
async def far(project: Project) -> AsyncIterator[Project]:
    project.configure('[cluster]\nnode_ssh = "auto"\n')
    tk_lab.set_rtt(RTT_MS, project.lab.dir)
    yield project
    tk_lab.heal(project.lab.dir)


def events(project: Project) -> list[tuple[str, str]]:
    """Each event's kind (a state's: its name) and text."""
    (path,) = (project.base / "s").glob("*/events.jsonl")
    read = [json.loads(line) for line in path.read_text().splitlines()]
    return [(one["state"] if one["kind"] == "state" else one["kind"], one["text"]) for one in read]


async def by_ssh(project: Project) -> None:
    await eventually(lambda: ("route", "node1 is reached by ssh") in events(project), "ssh")


@pytest.mark.timeout(240)
async def test_ready_before_the_nodes_ssh_which_then_carries_the_wire(far: Project) -> None:
    status = await far.up("node1")
    assert status["state"] == "ready"
    seen = events(far)
    kinds = [kind for kind, _ in seen]
    entered = seen.index(("route", "node1 is reached by srun at first"))
    # Not one round trip of the node's own login was waited for.
    assert entered < kinds.index("ready")
    assert ("route", "node1 is reached by ssh") not in seen[: kinds.index("ready")]

    terminal = await far.loop("python", "2.py")
    await by_ssh(far)
    assert (await far.status())["route"] == "ssh"
    editor, thread, frame = await far.f5_to_stop(STOP)
    await editor.request("setBreakpoints", source=frame["source"], breakpoints=[])
    await editor.finish(thread)
    await terminal.line("run 1 · ended: exit code 0")
    assert "reconnecting" not in [kind for kind, _ in events(far)]
    await far.tk("down")
    assert await terminal.ended() == 0
    await far.nothing_left()


@pytest.mark.timeout(240)
async def test_a_node_that_refuses_ssh_keeps_the_early_way(far: Project) -> None:
    tk_lab.stop_daemon("sshd-node1", far.lab.dir)
    try:
        assert (await far.up("node1"))["route"] == "srun"
        await eventually(lambda: "node1 refuses ssh" in far.session_log(), "the refusal")
        status = await far.status()
        assert (status["state"], status["route"]) == ("ready", "srun")
        assert (await far.tk("run", "echo", "there")).out.split() == ["there"]
        assert "reconnecting" not in [kind for kind, _ in events(far)]
    finally:
        tk_lab.start_daemon("sshd-node1", far.lab.dir)


@pytest.mark.timeout(240)
async def test_a_changed_host_key_stops_tk_though_the_early_way_needs_none(far: Project) -> None:
    known = Layout(far.lab.dir).ssh / "known_hosts"
    right = known.read_text()
    login, node1, *others = right.splitlines()
    changed = " ".join((node1.split()[0], *login.split()[1:]))
    known.write_text("\n".join((login, changed, *others)) + "\n")
    try:
        await far.tk("up", "node1", code=None)

        def stopped() -> bool:
            return any("host key" in text for kind, text in events(far) if kind == "error")

        # Whichever was first, the step or the key: nothing is reached any more.
        await eventually(stopped, "the end")
        passed = ("starting", "ready", "reconnecting", "failed", "closing")
        assert [kind for kind, _ in events(far) if kind in passed][-1] not in ("starting", "ready")
    finally:
        known.write_text(right)


@pytest.mark.timeout(240)
async def test_down_does_not_wait_for_a_login_under_way(far: Project) -> None:
    await far.up("node1")
    assert ("route", "node1 is reached by ssh") not in events(far)
    await far.tk("down")
    await far.nothing_left()
