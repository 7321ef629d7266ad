"""The first copy as `tk up` shows it: one line that is rewritten, or one word in a pipe."""

from __future__ import annotations

from typing import Any

import pytest

from tunnelkit.cli.views import startup
from tunnelkit.cli.views.startup import Follower

HALF = {"files": 50, "files_total": 100, "bytes": 2e6, "bytes_total": 4e6, "eta_s": 61.0}
MORE = {**HALF, "files": 60, "eta_s": None}


class Line:
    """A status line that remembers."""

    def __init__(self, live: bool) -> None:
        self.live = live
        self.shown: list[str] = []

    def update(self, text: str) -> None:
        self.shown.append(text)

    def clear(self) -> None:
        self.shown.append("")


def follower(monkeypatch: pytest.MonkeyPatch, *, live: bool) -> tuple[Follower, Line]:
    line = Line(live)
    monkeypatch.setattr(startup, "StatusLine", lambda: line)
    return Follower(None), line


async def test_on_a_terminal_it_is_part_of_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    follows, line = follower(monkeypatch, live=True)
    await follows._changed({"state": "pending", "detail": "job 7: Resources"})
    await follows._copying(HALF)
    await follows._copying(MORE)
    await follows._copying({})
    assert line.shown == [
        "  queued, job 7: Resources",
        "  sending: 50 of 100 files, 2.0 MB of 4.0 MB, 0:01:01 left; queued, job 7: Resources",
        "  sending: 60 of 100 files, 2.0 MB of 4.0 MB; queued, job 7: Resources",
        "  queued, job 7: Resources",
    ]


async def test_it_does_not_write_over_a_question(monkeypatch: pytest.MonkeyPatch) -> None:
    follows, line = follower(monkeypatch, live=True)
    async with follows._asking:
        await follows._copying(HALF)
    assert line.shown == []


@pytest.mark.parametrize(("patience_s", "lines"), [(-1.0, 1), (3600.0, 0)])
async def test_in_a_pipe_only_a_long_one_is_told_and_once(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    patience_s: float,
    lines: int,
) -> None:
    monkeypatch.setattr(startup, "_LONG_S", patience_s)
    follows, line = follower(monkeypatch, live=False)
    told: list[dict[str, Any]] = [HALF, MORE, MORE, {}]
    for params in told:
        await follows._copying(params)
    assert capsys.readouterr().err.count("sending: 50 of 100 files") == lines
    assert line.shown == []
