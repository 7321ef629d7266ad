"""Runs checks side by side with limits; a check that hangs is reported, and blocks nothing."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from tunnelkit.errors import TunnelkitError
from tunnelkit.session.doctor.check import Check, CheckResult, CheckStatus, Finding, fail, skip
from tunnelkit.session.doctor.context import CheckContext

T = TypeVar("T")
#: Time for the user to answer ssh's questions.
ASKING_S = 180.0


async def run_checks(
    checks: Sequence[Check],
    scene: CheckContext,
    done: Callable[[CheckResult], None] = lambda result: None,
) -> list[CheckResult]:
    """Return the results in the order of `checks`; `done` is called with each as it comes."""
    tasks: dict[str, asyncio.Task[CheckResult]] = {}

    async def one(check: Check) -> CheckResult:
        begin = time.monotonic()
        finding = await _unmet(check, tasks) or await _run(check, scene)
        result = _result(check, finding, time.monotonic() - begin)
        done(result)
        return result

    for check in checks:
        tasks[check.name] = asyncio.create_task(one(check))
    try:
        return list(await asyncio.gather(*tasks.values()))
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)


async def _unmet(check: Check, tasks: Mapping[str, asyncio.Task[CheckResult]]) -> Finding | None:
    """Return why the check can't run; None if it can."""
    for name in check.needs:
        before = await asyncio.shield(tasks[name])
        if before.status is CheckStatus.FAIL:
            return skip(f"not checked: {name} failed")
        if before.status is CheckStatus.SKIP:
            # The first reason, not a chain of them.
            return skip(before.found)
    return None


async def _run(check: Check, scene: CheckContext) -> Finding:
    limit_s = ASKING_S if check.asks and scene.interactive else check.limit_s * scene.patience
    try:
        async with asyncio.timeout(limit_s):
            return await check.run(scene)
    except TimeoutError:
        return fail(f"no answer within {limit_s:g} s")
    except TunnelkitError as error:
        found = f"{error.message}: {error.cause}" if error.cause else error.message
        return fail(" ".join(found.split()), fix=error.hint)
    except Exception as error:
        # An unforeseen error in one check must not lose the others' results.
        return fail(
            f"the check met an error of its own: {type(error).__name__}: {error}",
            fix="please report it with `tk bugreport`",
        )


def _result(check: Check, finding: Finding, took_s: float) -> CheckResult:
    wrong = finding.status in (CheckStatus.WARN, CheckStatus.FAIL)
    fix = (finding.fix or check.fix) if wrong else None
    return CheckResult(check.name, finding.status, finding.found, fix, finding.data, took_s)


async def in_thread(work: Callable[[], T]) -> T:
    """Do blocking work in a thread that the program's end does not wait for.

    A dead file server may never answer, and asyncio's own threads would keep the program."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(outcome: Callable[[], None]) -> None:
        if not future.done():
            outcome()

    def run() -> None:
        try:
            outcome = partial(future.set_result, work())
        except BaseException as error:
            outcome = partial(future.set_exception, error)
        # The loop may have ended meanwhile.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, outcome)

    threading.Thread(target=run, daemon=True).start()
    return await future
