"""Nothing that a cluster says moves the cursor, sets the title or paints a line like tk's."""

from __future__ import annotations

from tests.support.pty_terminal import on_a_terminal
from tests.support.scheduler_rig import Programs
from tests.support.scheduler_rig import host as host
from tests.support.scheduler_rig import programs as programs
from tests.support.scheduler_rig import project as project
from tests.support.tkrig import Project

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
