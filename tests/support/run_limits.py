"""Limits of a whole run: what is slow begins only while there is time, and a late run says so.

TK_TEST_SLOW_UNTIL and TK_TEST_UNTIL are times in seconds since the epoch (scripts/test --within);
TK_TEST_INTERNAL_ERRORS is a file for the errors of pytest itself.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path

import pytest

SLOW_UNTIL, UNTIL = "TK_TEST_SLOW_UNTIL", "TK_TEST_UNTIL"
INTERNAL_ERRORS = "TK_TEST_INTERNAL_ERRORS"


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(PhaseTimeouts())


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a slow test, or fail any test, that would begin too late."""
    slow = item.get_closest_marker("slow") is not None
    if past(UNTIL, os.environ, time.time()):
        pytest.fail("not run: the time of scripts/test --within is over", pytrace=False)
    if slow and past(SLOW_UNTIL, os.environ, time.time()):
        pytest.skip("slow, and this run is late: scripts/test --all without --within runs it")


def pytest_internalerror(excrepr: object) -> None:
    """Keep an error of pytest's own: scripts/test shows it once more at its end."""
    if name := os.environ.get(INTERNAL_ERRORS):
        with Path(name).open("a") as file:
            file.write(f"{excrepr}\n")


class PhaseTimeouts:
    """A clock of its own for a test's set-up, and one for its clean-up.

    pytest-timeout's is for all of a test, its reports included, and is stopped by a failure: an
    alarm within pytest's own code ends the whole run, and a clean-up after a failure has no limit.
    With timeout_func_only it times the call alone."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None]:
        """Time what the test's fixtures do before it."""
        with _timed(item):
            yield

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None]:
        """Time what they do after it."""
        with _timed(item):
            yield


@contextlib.contextmanager
def _timed(item: pytest.Item) -> Iterator[None]:
    from pytest_timeout import _get_item_settings

    settings = _get_item_settings(item)
    if settings.timeout:
        item.ihook.pytest_timeout_set_timer(item=item, settings=settings)
    try:
        yield
    finally:
        if settings.timeout:
            item.ihook.pytest_timeout_cancel_timer(item=item)


def past(name: str, environ: Mapping[str, str], now: float) -> bool:
    """True if `environ` has the limit `name`, and `now` is later."""
    limit = environ.get(name)
    return bool(limit) and now > float(limit or 0)
