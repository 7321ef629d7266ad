"""Checks run side by side, wait only for what they need, and none holds up the end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tunnelkit.config.load import assemble
from tunnelkit.errors import ConfigError, ConnectionFailed
from tunnelkit.session.backends.registry import make_link
from tunnelkit.session.doctor.check import Check, CheckStatus, Finding, fail, ok, skip, warn
from tunnelkit.session.doctor.checks import SSH_CHECKS
from tunnelkit.session.doctor.context import CheckContext
from tunnelkit.session.doctor.runner import in_thread, run_checks
from tunnelkit.session.runtime.paths import SessionPaths


def scene(tmp_path: Path) -> CheckContext:
    settings = assemble(
        tmp_path, None, cwd=tmp_path, overrides={"cluster.login": "login"}, environ={}
    )
    paths = SessionPaths("0", tmp_path / "r", tmp_path / "s")
    return CheckContext(settings, paths, project_dir=tmp_path, make_link=make_link)


async def fine(at: CheckContext) -> Finding:
    return ok("fine")


async def test_results_stand_in_the_tables_order_and_each_is_told(tmp_path: Path) -> None:
    first_may_end = asyncio.Event()
    told: list[str] = []

    async def late(at: CheckContext) -> Finding:
        await first_may_end.wait()
        return warn("late")

    async def early(at: CheckContext) -> Finding:
        first_may_end.set()
        return ok("early")

    checks = [Check("a", late, "do a"), Check("b", early, "do b")]
    results = await run_checks(checks, scene(tmp_path), lambda result: told.append(result.name))
    assert [one.name for one in results] == ["a", "b"] and told == ["b", "a"]
    assert [one.fix for one in results] == ["do a", None]
    assert results[0].to_json()["status"] == "warn"


async def test_a_check_that_hangs_fails_and_the_others_are_told(tmp_path: Path) -> None:
    async def hangs(at: CheckContext) -> Finding:
        await asyncio.Event().wait()
        raise AssertionError

    checks = [Check("a", hangs, "do a", limit_s=0.05), Check("b", fine, ""), Check("c", fine, "")]
    results = await run_checks(checks, scene(tmp_path))
    assert results[0].status is CheckStatus.FAIL
    assert results[0].found == "no answer within 0.05 s" and results[0].fix == "do a"
    assert [one.status for one in results[1:]] == [CheckStatus.OK, CheckStatus.OK]


@pytest.fixture
def never() -> Iterator[threading.Event]:
    """An event that comes only when the test is over: a dead file server."""
    event = threading.Event()
    yield event
    event.set()


def test_a_thread_that_hangs_does_not_keep_the_program(
    tmp_path: Path, never: threading.Event
) -> None:
    async def hangs(at: CheckContext) -> Finding:
        await in_thread(never.wait)
        raise AssertionError

    async def run() -> list[CheckStatus]:
        results = await run_checks([Check("a", hangs, "", limit_s=0.05)], scene(tmp_path))
        return [one.status for one in results]

    # asyncio.run waits for its own threads: it would stay here for ever.
    assert asyncio.run(run()) == [CheckStatus.FAIL]


async def test_errors_of_a_thread_reach_the_check() -> None:
    def breaks() -> None:
        raise ConfigError("no")

    with pytest.raises(ConfigError):
        await in_thread(breaks)


async def test_what_needs_a_failed_check_is_not_tried(tmp_path: Path) -> None:
    async def fails(at: CheckContext) -> Finding:
        raise ConnectionFailed("no way to login", cause="it is\ndown", hint="wait")

    async def skipped(at: CheckContext) -> Finding:
        return skip("nothing to look at")

    async def never_run(at: CheckContext) -> Finding:
        raise AssertionError

    checks = [
        Check("a", fails, "do a"),
        Check("b", never_run, "", needs=("a",)),
        Check("c", never_run, "", needs=("b",)),
        Check("d", skipped, ""),
        Check("e", never_run, "", needs=("d",)),
    ]
    a, b, c, d, e = await run_checks(checks, scene(tmp_path))
    assert a.found == "no way to login: it is down" and a.fix == "wait"
    assert b.status is c.status is CheckStatus.SKIP
    assert b.found == c.found == "not checked: a failed"
    assert e.found == d.found == "nothing to look at" and e.fix is None


async def test_a_check_that_breaks_costs_only_itself(tmp_path: Path) -> None:
    async def breaks(at: CheckContext) -> Finding:
        raise ZeroDivisionError("oh")

    broken, whole = await run_checks(
        [Check("a", breaks, ""), Check("b", fine, "")], scene(tmp_path)
    )
    assert broken.status is CheckStatus.FAIL and "ZeroDivisionError: oh" in broken.found
    assert whole.status is CheckStatus.OK


async def test_a_finding_may_bring_its_own_fix(tmp_path: Path) -> None:
    async def own(at: CheckContext) -> Finding:
        return fail("wrong", fix="do this")

    (result,) = await run_checks([Check("a", own, "do that")], scene(tmp_path))
    assert result.fix == "do this"


def test_the_table_is_in_an_order_that_can_run() -> None:
    known: set[str] = set()
    for check in SSH_CHECKS:
        assert check.name not in known
        assert set(check.needs) <= known, f"{check.name} stands before what it needs"
        known.add(check.name)
        assert check.fix and "\n" not in check.fix
        assert check.run.__doc__, f"{check.name} does not say what it looks at"
        assert 0 < check.limit_s <= 30
