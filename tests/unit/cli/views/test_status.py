"""The text of `tk status`, where a node, a job or a program named everything that it can."""

from __future__ import annotations

from typing import Any

import pytest

from tunnelkit.cli.terminal.output import say
from tunnelkit.cli.views.status import lines
from tunnelkit.session.runtime.status import SessionStatus

#: Lines like tk's own, one in the colours that tk paints in, and other words to a terminal.
EVIL = "x\n\x1b[31mtk:\x1b[0m ready\nsession  \x1b[32mready\x1b[0m\r\x1b[2J\x07\x9b8m\u202e\u2028y"


def evil_status(**more: object) -> SessionStatus:
    mirror: dict[str, Any] = {
        "state": "pending", "text": EVIL, "since": 0.0, "reason": None, "files": 1, "bytes": 1,
        "pending": 1, "pending_paths": [EVIL], "conflicts": [EVIL], "root": EVIL, "node": EVIL,
        "local": EVIL, "remote": EVIL, "watching": True, "warnings": [EVIL], "progress": None,
    }  # fmt: skip
    rank = {"rank": 0, "node": EVIL, "pid": EVIL, "port": 1, "over": False, "editor": EVIL}
    loop: dict[str, Any] = {
        "generation": 1, "state": "kept", "editor": EVIL, "port": 1, "command": EVIL,
        "kept": {"error": EVIL, "where": EVIL}, "ranks": [rank],
        "standby": {"generation": 2, "pid": EVIL},
    }  # fmt: skip
    job: dict[str, Any] = {
        "id": "1", "adopted": False, "made_by": "tk", "requeues": 0, "nodes": [],
        "time_left_s": None, "time_is_near": False, "pending_reason": EVIL, "start_estimate": EVIL,
    }  # fmt: skip
    job |= more
    mount = {"mountpoint": EVIL, "host": EVIL, "remote": EVIL, "state": EVIL}
    whole: dict[str, Any] = {
        "version": EVIL, "state": "pending", "detail": EVIL, "attention": EVIL, "failure": None,
        "project": EVIL, "login": EVIL, "scheduler": "slurm", "job": job, "route": EVIL,
        "agent": {"node": EVIL, "cuda_visible_devices": EVIL}, "mirror": mirror,
        "other_nodes": [{"node": EVIL, "agent": EVIL, "why_not": why} for why in (EVIL, None)],
        "mirrors": [mirror], "loops": [loop], "debug_port": 1, "mounts": [mount],
        "forwards": [{"forward": EVIL, "route": EVIL, "shared": False}],
    }  # fmt: skip
    made: SessionStatus = whole  # type: ignore[assignment]
    return made


def test_no_text_begins_a_line_or_reaches_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    shown = lines(evil_status())
    say("\n".join(shown))
    printed = capsys.readouterr().out
    assert printed.splitlines() == shown
    assert all(line.isprintable() for line in shown), printed
    assert not any(line.startswith(("tk:", "session  ready")) for line in shown)
    for more in ({"nodes": [EVIL]}, {"nodes": [EVIL], "time_left_s": 9}):
        assert all(line.isprintable() for line in lines(evil_status(**more)))
