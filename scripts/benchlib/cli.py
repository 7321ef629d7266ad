"""What a person waits for at the keyboard: `tk status`, `tk up`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial

from benchlib.measure import Series, interleaved, timed
from benchlib.rig import NODE, TK, Rig, wait_until

BARE, TYPER, STATUS = "python -c pass", 'python -c "import typer"', "tk status"
WALL = "whole process, ms"
SRUN, COLD, WARM, AGAIN = (
    "ssh login srun true (scheduler alone)",
    "tk up, nothing there",
    "tk up, link there, new job",
    "tk up, session there",
)
UP = "key press to ready, s"


def run_status(rig: Rig, rounds: int) -> dict[str, dict[str, Series]]:
    """Whole-process wall times beside what importing typer alone costs."""
    argvs = {
        BARE: [sys.executable, "-c", "pass"],
        TYPER: [sys.executable, "-c", "import typer"],
        STATUS: [TK, "status"],
    }
    found: dict[str, Series] = {name: Series() for name in argvs}
    with rig.session():
        for argv in argvs.values():
            _run(rig, argv)  # bytecode and pages are there
        for name in interleaved(list(argvs), rounds, "status"):
            found[name].values.append(timed(partial(_run, rig, argvs[name])) * 1e3)
    return {WALL: found}


def run_up(rig: Rig, rounds: int) -> dict[str, dict[str, Series]]:
    """`tk up` on a free node, down between; srun of nothing tells the scheduler's share."""
    found = {name: Series() for name in (SRUN, COLD, WARM, AGAIN)}
    # As users have it: the lab's profile insists on the node's ssh.
    profile = rig.info.profile
    profile.write_text(profile.read_text().replace('node_ssh = "yes"', 'node_ssh = "auto"'))
    rig.up()  # the agent's zip and the mirror's first copy are there
    rig.tk("down")
    for name in interleaved([SRUN, COLD, WARM, AGAIN], rounds, "up"):
        wait_until(lambda: _is_idle(rig), f"{NODE} idle", timeout_s=60.0)
        if name == SRUN:
            argv = rig.ssh("--", "login", f"srun -w {NODE} --gpus 1 -c 2 true")
            found[name].values.append(timed(partial(_run, rig, argv)))
            continue
        if name == AGAIN:
            rig.up()
        elif name == WARM:
            _leave_link_only(rig)
        found[name].values.append(timed(rig.up))
        rig.tk("down")
    return {UP: found}


def _run(rig: Rig, argv: list[str]) -> None:
    subprocess.run(
        argv,
        cwd=rig.project,
        env=rig.environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        check=True,
        timeout=60.0,
    )


def _on_login(rig: Rig, command: str) -> str:
    done = subprocess.run(
        rig.ssh("--", "login", command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=60.0,
    )
    return done.stdout


def _is_idle(rig: Rig) -> bool:
    # Completing jobs still hold the node and would be counted as our wait. sinfo's state of the
    # node may stay "mixed" for a minute after the last job's end.
    node = _on_login(rig, f"scontrol show node {NODE}")
    return "CPUAlloc=0 " in node and not _on_login(rig, "squeue -h -t PD,CF,R,S,CG -o %T").strip()


def _leave_link_only(rig: Rig) -> None:
    """A session killed with -9 whose job then ended: its ssh master is what is left."""
    rig.up()
    status = rig.status()
    job, pid = status["job"], status["pid"]
    assert isinstance(job, dict) and isinstance(pid, int)
    os.kill(pid, signal.SIGKILL)
    _on_login(rig, f"scancel {job['id']}")
    wait_until(lambda: _is_idle(rig), f"the end of job {job['id']}", timeout_s=60.0)
