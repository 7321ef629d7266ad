"""What an editor does at F5, with a stopwatch: attach, stop, step, run to the end, again.

After each stop it asks what VS Code asks, one request after the other, until the locals are there.
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
    """One way's round.

    locals_ms: connect to locals; step_locals_ms: `next` to locals. again_ms: `terminated` to the
    next `stopped`; again_from_continue_ms: the same from the `continue` on, so with the program's
    own end.
    """

    stopped_ms: float = 0.0
    locals_ms: float = 0.0
    again_ms: float = 0.0
    again_from_continue_ms: float = 0.0
    steps_ms: list[float] = field(default_factory=list)
    step_locals_ms: list[float] = field(default_factory=list)
    hovers_ms: list[float] = field(default_factory=list)
    refused: int = 0
    hung: int = 0


async def play(target: Target) -> Round:
    """F5 to the breakpoint, steps, on to the end, F5 at once, and to the end again."""
    first = await press(target)
    frame = await _locals(first)
    seen = Round(stopped_ms=first.took_ms, locals_ms=(time.perf_counter() - first.began) * 1e3)
    for _ in range(_STEPS):
        frame = await _step(first, seen)
        seen.hovers_ms.append(await _hover_ms(first, frame))
    continued = time.perf_counter()
    ended = await run_out(first)
    second = await press(target)
    await _locals(second)
    await run_out(second)
    seen.again_ms = (second.stopped - ended) * 1e3
    seen.again_from_continue_ms = (second.stopped - continued) * 1e3
    seen.refused, seen.hung = second.refused, second.hung
    return seen


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


async def _step(stop: Press, seen: Round) -> int:
    start = time.perf_counter()
    stepping = asyncio.create_task(stop.client.request("next", threadId=stop.thread))
    await stop.client.wait_event("stopped")
    seen.steps_ms.append((time.perf_counter() - start) * 1e3)
    frame = await _locals(stop)
    seen.step_locals_ms.append((time.perf_counter() - start) * 1e3)
    await stepping
    return frame


async def _locals(stop: Press) -> int:
    """Ask until the locals are there; the number of the top frame."""
    ask = stop.client.request
    await ask("threads")
    stack = await ask("stackTrace", threadId=stop.thread, startFrame=0, levels=1)
    await ask("stackTrace", threadId=stop.thread, startFrame=1, levels=19)
    frame = int(stack["stackFrames"][0]["id"])
    scopes = (await ask("scopes", frameId=frame))["scopes"]
    await ask("variables", variablesReference=scopes[0]["variablesReference"])
    return frame


async def _hover_ms(stop: Press, frame: int) -> float:
    start = time.perf_counter()
    await stop.client.request("evaluate", expression="total", frameId=frame, context="hover")
    return (time.perf_counter() - start) * 1e3


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
