"""A debug session lives on through all that cuts a stream to a pod."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable

import pytest

from tests.support.kubernetes.project import POD, RigProject
from tests.support.tkrig import PROGRAM, line_of

pytestmark = [
    pytest.mark.root,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("ml_dev_env"),
]

STOP = line_of(PROGRAM, "total += step")
#: How long no connection to the API server can be made.
AWAY_S = 5.0


async def the_proxy_is_killed(project: RigProject) -> None:
    (one,) = [one for one in project.laptop_processes() if "proxy" in one.argv]
    os.kill(one.pid, signal.SIGKILL)


async def all_connections_are_reset(project: RigProject) -> None:
    """And none can be made for a while."""
    network = project.member.rig.network
    network("reset")
    await asyncio.sleep(AWAY_S)
    network("heal")


async def nothing_passes(project: RigProject) -> None:
    """Longer than the session believes in a silent stream."""
    network = project.member.rig.network
    network("cut")
    await asyncio.sleep(4 * AWAY_S)
    network("heal")


async def the_api_server_restarts(project: RigProject) -> None:
    await asyncio.to_thread(project.member.rig.restart, "kube-apiserver")


async def the_kubelet_restarts(project: RigProject) -> None:
    await asyncio.to_thread(project.member.rig.restart, "kubelet")


@pytest.mark.parametrize(
    "loss",
    [
        the_proxy_is_killed,
        all_connections_are_reset,
        nothing_passes,
        the_api_server_restarts,
        the_kubelet_restarts,
    ],
    ids=lambda loss: loss.__name__,
)
async def test_who_stands_at_a_breakpoint_goes_on(
    project: RigProject, loss: Callable[[RigProject], Awaitable[None]]
) -> None:
    await project.up(POD)
    terminal = await project.loop("python3", "2.py")
    editor, thread, frame = await project.f5_to_stop(STOP)
    await editor.request("setBreakpoints", source={"path": str(project.dir / "2.py")})
    await loss(project)
    healed = time.monotonic()
    try:
        async with asyncio.timeout(60):
            # Not what the editor knows by now: the program is asked.
            assert await editor.evaluate("total + 1000", frame) == "1000"
    except TimeoutError:
        pytest.fail(project.session_log())
    print(f"{loss.__name__}: a value {time.monotonic() - healed:.1f} s after it was over")
    project.write("2.py", PROGRAM.replace('"first"', '"second"'))
    await editor.finish(thread)
    await terminal.line(r"step 2 first")
    await project.ready()
    editor, thread, frame = await project.f5_to_stop(STOP)
    assert await editor.evaluate("WORD", frame) == "'second'"
    await project.tk("down")
