"""Nothing that a cluster says moves the cursor, sets the title or paints a line like tk's."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.pty_terminal import on_a_terminal
from tests.support.scheduler_rig import Programs
from tests.support.scheduler_rig import host as host
from tests.support.scheduler_rig import programs as programs
from tests.support.scheduler_rig import project as project
from tests.support.tkrig import Project
from tunnelkit.cli.commands.files.sync import show_report
from tunnelkit.cli.terminal.stream_end import exit_code

#: A title, a cleared screen, a line that looks like tk's, 8-bit CSI, an override of the direction.
EVIL = r"\033]0;OWNED\007\033[2J\rtk: ready, press F5\033[8m\302\2332J\342\200\256"


async def test_what_the_scheduler_says_is_shown_as_text(
    project: Project, programs: Programs
) -> None:
    asked = 'case " $* " in *" --version "*) exec "$REAL" "$@" ;; esac'
    programs.replace("sbatch", f"{asked}\nprintf 'no: {EVIL}' >&2; exit 1")
    async with on_a_terminal(project, "up", "node1") as screen:
        assert await screen.ended() != 0
    assert "OWNED" in screen.raw, "the person is shown what it said"
    for obeyed in ("\x1b]", "\x1b[2J", "\x1b[8m", "\x07", "\x9b", "\u202e"):
        assert obeyed not in screen.raw
    assert not any(line.startswith("tk: ready") for line in screen.lines)


#: A line of its own, in the very red that tk paints its errors with.
LINE = "x\n\x1b[31mtk:\x1b[0m ready, press F5"


def test_a_name_or_reason_of_the_far_side_begins_no_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A path that was changed there, the reason why a process ended, the session's detail."""
    answer: Any = {
        "sent": 0, "deleted": 0, "duration_s": 0.1, "unproven": LINE, "warnings": [LINE],
        "kept": [LINE], "replaced": [LINE], "replaced_dir": "there",
    }  # fmt: skip
    show_report(answer)
    exit_code({"error": LINE})
    out, err = capsys.readouterr()
    assert f"{out}{err}".count("ready, press F5") == 5
    assert not any(line.startswith(("\x1b", "tk: ready")) for line in f"{out}{err}".splitlines())
    assert "\x1b" not in f"{out}{err}"
