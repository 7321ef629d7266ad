"""A waiting job of which Slurm's commands say what a terminal, a shell, a configuration parser or
`format` would obey, in lines without measure: `tk up`, `tk status` and `tk why` show text."""

from __future__ import annotations

import shlex
import sys
import time

from tests.support.login_rig import LoginHost
from tests.support.pty_terminal import on_a_terminal
from tests.support.scheduler_rig import Programs
from tests.support.scheduler_rig import host as host
from tests.support.scheduler_rig import programs as programs
from tests.support.scheduler_rig import project as project
from tests.support.tkrig import Project

#: For the reason of a job that is held: nothing of it may be obeyed. It has no `|`, so that it is
#: read; the other lines are no rows.
LIES = r"""
import subprocess, sys
real = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE)
evil = (
    b"\x1b]0;OWNED\x07\x1b[2J\x1b[31mtk:\x1b[0m ready\x9b8m\xe2\x80\xae\xc2\x9b2J\xff\xfe "
    b"$(touch it-ran) `touch it-ran` ';touch it-ran;' ${HOME} %(asctime)s %s %n {0} {x.__class__} "
)
flood = b"\r\x1b[31mtk: ready" + b"y" * 1000000 + b"\n\xff\xfe\x9b2J\n\x1b]0;OWNED\x07\n"
said = real.stdout.replace(b"JobHeldUser", evil + b"z" * 100000)
for stream in (sys.stdout, sys.stderr):
    stream.buffer.write(flood)
sys.stdout.buffer.write(b"tk: ready, press F5\n" + said + flood)
sys.exit(real.returncode)
"""
_RAW = ("\x1b]", "\x1b[2J", "\x1b[8m", "\x07", "\x9b", "\u202e", "\x1b[31mtk:\x1b[0m ready")
_EXPANDED = ("/home", "<class", "asctime=")


def is_text(text: str) -> None:
    assert not any(one in text for one in _RAW), text[:3000]
    assert not any(line.startswith("tk: ready") for line in text.splitlines()), text[:3000]
    assert len(text) < 60_000


async def test_a_waiting_job_s_words_are_shown_as_text(
    project: Project, programs: Programs, host: LoginHost
) -> None:
    lies = host.home / "lies.py"
    lies.write_text(LIES)
    says = f'exec {shlex.join([sys.executable, "-I", str(lies)])} "$REAL" "$@"'
    programs.replace("sbatch", 'case " $* " in *" --version "*) ;; *) set -- --hold "$@" ;; esac\n'
                     'exec "$REAL" "$@"')  # fmt: skip
    for name in ("squeue", "scontrol", "sacct", "sinfo"):
        programs.replace(name, says)
    begun_s = time.monotonic()
    async with on_a_terminal(project, "up", "node1") as screen:
        await screen.shows("queued, .*OWNED")
        status = await project.tk("status")
        assert "OWNED" in status.out and "%(asctime)s" in status.out and "{0}" in status.out
        job = str((await project.tk("status", "--json")).json["job"]["id"])
        for words in (("why", job), ("why", job, "--json"), ("why",), ("status", "--json")):
            done = await project.tk(*words, code=None)
            is_text(done.out + done.err)
            assert "never" not in done.err
        is_text(status.out + status.err)
        is_text(screen.raw)
        screen.type("\x03")
        await screen.shows("ancel the job")
        screen.type("c\r")
        await screen.ended()
    is_text(screen.raw)
    assert time.monotonic() - begun_s < 60
    assert "$(touch it-ran)" in status.out and "${HOME}" in status.out
    for place in (project.base, host.home, project.dir, project.lab.home):
        assert not list(place.rglob("it-ran"))
