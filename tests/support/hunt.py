"""TK_HUNT_S: the tests of a run over and over, for that many seconds or until one fails.

With TK_HUNT, hypothesis has other examples in each round.
"""

from __future__ import annotations

import os
import re
import time

import pytest
from _pytest.terminal import TerminalReporter

_EXAMPLES = re.compile(r"(\d+) passing")
_told = pytest.StashKey[str]()


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Take pytest's own loop's place where a hunt is wanted."""
    limit_s = float(os.environ.get("TK_HUNT_S") or 0)
    if not limit_s or session.config.option.collectonly:
        return None
    begun, rounds, examples = time.monotonic(), 0, 0
    while time.monotonic() - begun < limit_s and not session.testsfailed:
        for item in session.items:
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
            statistics = getattr(item, "hypothesis_statistics", "")
            examples += sum(map(int, _EXAMPLES.findall(statistics)))
            if session.testsfailed:
                break
        rounds += 1
    took_s = time.monotonic() - begun
    session.config.stash[_told] = (
        f"hunt: {examples:,} examples in {rounds} rounds, {took_s:.0f} s, "
        f"{session.testsfailed} failures"
    )
    return True


def pytest_terminal_summary(terminalreporter: TerminalReporter, config: pytest.Config) -> None:
    """Tell how far the hunt went."""
    if text := config.stash.get(_told, ""):
        terminalreporter.write_line(text)
