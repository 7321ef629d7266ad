"""Limits of a whole run: what is slow begins only while there is time, and a late run says so.

TK_TEST_SLOW_UNTIL and TK_TEST_UNTIL are times in seconds since the epoch (scripts/test --within).
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Mapping

import pytest

SLOW_UNTIL, UNTIL = "TK_TEST_SLOW_UNTIL", "TK_TEST_UNTIL"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a slow test, or fail any test, that would begin too late."""
    slow = item.get_closest_marker("slow") is not None
    if past(UNTIL, os.environ, time.time()):
        pytest.fail("not run: the time of scripts/test --within is over", pytrace=False)
    if slow and past(SLOW_UNTIL, os.environ, time.time()):
        pytest.skip("slow, and this run is late: scripts/test --all without --within runs it")


def past(name: str, environ: Mapping[str, str], now: float) -> bool:
    """True if `environ` has the limit `name`, and `now` is later."""
    limit = environ.get(name)
    return bool(limit) and now > float(limit or 0)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Stop the test's timeout while its failure is written.

    On a busy machine that takes seconds, and an alarm within pytest itself ends the whole run."""
    from pytest_timeout import _get_item_settings

    hook, settings = item.ihook, _get_item_settings(item)
    timed = call.excinfo is not None and bool(settings.timeout) and not settings.func_only
    if timed:
        hook.pytest_timeout_cancel_timer(item=item)
    report = yield
    if timed and call.when != "teardown":
        hook.pytest_timeout_set_timer(item=item, settings=settings)
    return report
