"""What an editor does at F5, with a stopwatch: attach, stop, step, run to the end, again.

All ways are used by this same code. Nothing here polls but the retries of an editor that
was refused, which is what people do by hand.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field

from tunnelkit.demo.dap_client import DapClient
from tunnelkit.errors import DebugError

_RETRY_S = 0.05
#: An attempt that hangs this long is given up, as a person would.
_ATTEMPT_S = 10.0
_PATIENCE_S = 90.0
#: Timed steps a stop; their median is the round's value.
_STEPS = 5


@dataclass(frozen=True)
class Target:
    """Where to attach and where to stop. `script` is the editor's own copy."""

    port: int
    script: str
    line: int
    mappings: tuple[tuple[str, str], ...] = ()


@dataclass
class Press:
    """One F5 that reached its breakpoint. Times of time.perf_counter."""

    client: DapClient
    thread: int
    began: float
    stopped: float
    refused: int
    hung: int

    @property
    def took_ms(self) -> float:
        return (self.stopped - self.began) * 1e3


@dataclass
class Round:
    """One way's round. again_ms: `terminated` to the next `stopped`; again_from_continue_ms:
    the same from the `continue` on, so with the program's own end."""

    stopped_ms: float = 0.0
    again_ms: float = 0.0
    again_from_continue_ms: float = 0.0
    steps_ms: list[float] = field(default_factory=list)
    refused: int = 0
    hung: int = 0


async def play(target: Target) -> Round:
    """F5 to the breakpoint, steps, on to the end, F5 at once, and to the end again."""
    first = await press(target)
    steps_ms = [await _step_ms(first) for _ in range(_STEPS)]
    continued = time.perf_counter()
    ended = await run_out(first)
    second = await press(target)
    await run_out(second)
    return Round(
        stopped_ms=first.took_ms,
        again_ms=(second.stopped - ended) * 1e3,
        again_from_continue_ms=(second.stopped - continued) * 1e3,
        steps_ms=steps_ms,
        refused=second.refused,
        hung=second.hung,
    )


async def press(target: Target) -> Press:
    """Attach and wait for the stop; refused attempts are repeated.

    The clock starts at the connect of the first attempt. Raises RuntimeError when no attempt
    within a minute and a half succeeds.
    """
    began = time.perf_counter()
    refused = hung = 0
    while time.perf_counter() - began < _PATIENCE_S:
        client = DapClient("bench")
        try:
            async with asyncio.timeout(_ATTEMPT_S):
                thread = await _attach(client, target)
            return Press(client, thread, began, time.perf_counter(), refused, hung)
        except TimeoutError:
            hung += 1
            await client.drop()
        except (OSError, DebugError):
            # Through ssh -L a refusal is a connection that is closed at once.
            refused += 1
            await client.drop()
        except BaseException:
            await client.drop()
            raise
        await asyncio.sleep(_RETRY_S)
    raise RuntimeError(f"port {target.port}: no F5 came through: {refused} refused, {hung} hung")


async def _attach(client: DapClient, target: Target) -> int:
    await client.connect(target.port)
    mappings = [{"localRoot": here, "remoteRoot": there} for here, there in target.mappings]
    await client.attach({target.script: [target.line]}, path_mappings=mappings)
    return int((await client.wait_event("stopped"))["threadId"])


async def _step_ms(stop: Press) -> float:
    start = time.perf_counter()
    stepping = asyncio.create_task(stop.client.request("next", threadId=stop.thread))
    await stop.client.wait_event("stopped")
    took = time.perf_counter() - start
    await stepping
    return took * 1e3


async def run_out(stop: Press) -> float:
    """Continue to the end and hang up; when `terminated` came, on time.perf_counter."""
    try:
        going_on = asyncio.create_task(stop.client.request("continue", threadId=stop.thread))
        await stop.client.wait_event("terminated")
        ended = time.perf_counter()
        with contextlib.suppress(DebugError):
            await going_on
    finally:
        await stop.client.close()
    return ended
