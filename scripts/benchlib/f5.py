"""From an editor's TCP connect to the `stopped` event: tk's port against stock debugpy's.

Both debuggees are armed and idle when the clock starts; both run the same trivial
script on the node, under the same debugpy.
"""

from __future__ import annotations

import asyncio
import shlex
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from benchlib.measure import Series, interleaved
from benchlib.rig import NODE, STOP_LINE, Rig, background, free_port, listens, wait_until
from benchlib.rig import TK as TK_PROGRAM
from tunnelkit.debug.client import DapClient

STOCK, TK = "debugpy --listen through ssh -J -L", "tk loop"
MEASURE = "connect to stopped, ms"
#: What is left of starting up after the debuggee says that it is armed.
_SETTLE_S = 0.5


def run(rig: Rig, rounds: int) -> dict[str, dict[str, Series]]:
    """measure -> way -> one value a round."""
    found = {MEASURE: {STOCK: Series(), TK: Series()}}
    with rig.session(), ExitStack() as stack:
        stock_port, local_port = free_port(), free_port()
        stack.enter_context(
            background(
                rig.ssh(
                    *("-N", "-o", "ExitOnForwardFailure=yes", "-J", "login"),
                    *("-L", f"127.0.0.1:{local_port}:127.0.0.1:{stock_port}", "--", NODE),
                )
            )
        )
        wait_until(lambda: listens(local_port), "ssh -J -L")
        stack.enter_context(_loop(rig))
        f5_ms(rig, rig.debug_port)  # the mirror has settled and every file is in the cache
        for way in interleaved([STOCK, TK], rounds, "F5"):
            if way == STOCK:
                with _stock(rig, stock_port):
                    value = f5_ms(rig, local_port)
            else:
                rig.tk("ready")
                time.sleep(_SETTLE_S)
                value = f5_ms(rig, rig.debug_port)
            found[MEASURE][way].values.append(value)
    return found


@contextmanager
def _loop(rig: Rig) -> Iterator[None]:
    argv = [TK_PROGRAM, "loop", "python", "-m", "debugpy", "--wait-for-client", rig.script.name]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with background(argv, cwd=rig.project, env=rig.environ, **quiet):
        wait_until(lambda: rig.status()["loops"], "tk loop")
        rig.tk("ready", "--sync")
        yield


@contextmanager
def _stock(rig: Rig, port: int) -> Iterator[None]:
    """`debugpy --listen --wait-for-client` on the node, listening and idle."""
    script = shlex.quote(str(rig.remote_project / rig.script.name))
    far = f"exec python -m debugpy --listen 127.0.0.1:{port} --wait-for-client {script}"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with background(rig.ssh("--", NODE, far), **quiet) as process:
        wait_until(lambda: listens(port), "debugpy --listen")
        time.sleep(_SETTLE_S)
        yield
        # Its end, so that its port is free for the next round.
        process.wait(20.0)
    wait_until(lambda: not listens(port), "the end of debugpy")


def f5_ms(rig: Rig, port: int) -> float:
    """One F5: milliseconds from connect to `stopped`; the program then runs to its end."""
    return asyncio.run(_f5_ms(rig, port))


async def _f5_ms(rig: Rig, port: int) -> float:
    client = DapClient("bench")
    mappings = [{"localRoot": str(rig.project), "remoteRoot": str(rig.remote_project)}]
    start = time.perf_counter()
    await client.connect(port)
    try:
        await client.attach({str(rig.script): [STOP_LINE]}, path_mappings=mappings)
        event = await client.wait_event("stopped")
        seconds = time.perf_counter() - start
        await client.finish(int(event["threadId"]))
    finally:
        await client.close()
    return seconds * 1e3
