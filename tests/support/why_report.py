"""A plugin of pytest: a table of the cases of `tk why`, with what each got. See scripts/why-cases.

A case is a test with the mark `why`; it is right if it passes. `saw` notes a verdict that it got.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

_GROUPS = ("waiting", "ended", "slow", "healthy")
_KEY = "why"
#: Verdicts that the running test has seen, as (code, certainty).
_SEEN: list[tuple[str, str]] = []
JSON = "--why-json"


def saw(code: str, certainty: str) -> None:
    """Note a verdict that the running test was given."""
    _SEEN.append((code, certainty))


@dataclass(frozen=True)
class Case:
    """One case and its end. certainty, code: of the last verdict that it was given."""

    group: str
    name: str
    right: bool
    code: str
    certainty: str
    seconds: float


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(JSON, metavar="FILE", help="write the cases there, too")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    _SEEN.clear()
    try:
        return (yield)
    finally:
        mark = item.get_closest_marker("why")
        if mark is not None:
            code, certainty = _SEEN[-1] if _SEEN else ("", "")
            item.user_properties.append((_KEY, [mark.args[0], code, certainty]))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    cases = [
        Case(group, report.nodeid.rpartition("::")[2], report.passed, code, certainty,
             round(report.duration, 1))
        for key in ("passed", "failed")
        for report in terminalreporter.stats.get(key, ())
        if report.when == "call"
        for name, (group, code, certainty) in report.user_properties
        if name == _KEY
    ]  # fmt: skip
    if not cases:
        return
    terminalreporter.section("tk why")
    for line in _table(cases):
        terminalreporter.write_line(line)
    target = config.getoption(JSON)
    if target:
        Path(target).write_text(json.dumps([vars(one) for one in cases], indent=1))


def _table(cases: list[Case]) -> Iterator[str]:
    width = max(len(one.name) for one in cases)
    for group in _GROUPS:
        for one in cases:
            if one.group == group:
                end = "right" if one.right else "WRONG"
                got = f"{one.code} ({one.certainty})" if one.code else ""
                yield f"{group:<8} {one.name:<{width}} {end}  {got:<32} {one.seconds:5.1f} s"
    yield ""
    for group in _GROUPS:
        mine = [one for one in cases if one.group == group]
        right = sum(one.right for one in mine)
        share = f", {right / len(mine):.0%}" if mine else ""
        yield f"{group:<8} {right} of {len(mine)} right{share}"
    proven = sum(not one.right and one.certainty == "proven" for one in cases)
    found = sum(not one.right for one in cases if one.group == "healthy")
    yield f"wrong, though proven: {proven}; findings on healthy programs: {found}"
