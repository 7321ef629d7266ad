"""The node's side: one job from its place in the queue to its end."""

from __future__ import annotations

import getopt
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from tests.support.pbs_programs.scheduler import place
from tests.support.pbs_programs.state import KILL_DELAY_S, UNKNOWN_JOB, State, fail, limit_s, user


def mom(state: State, argv: list[str]) -> None:
    """One job, from its place in the queue to its end."""
    job_id = argv[0]
    # The real one is no child of the command that submits.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    # What the real one is called by those whom it signals.
    Path("/proc/self/comm").write_text("pbs_mom")
    while True:
        with state.locked():
            job = state.job(job_id)
            if job is None or job["job_state"] in "FC":
                return
            if place(state, job):
                break
        time.sleep(0.05)
    run(state, job_id)


def run(state: State, job_id: str) -> None:
    job = state.job(job_id)
    assert job is not None
    number = job_id.partition(".")[0]
    node_file, spool = state.root / f"{number}.nodes", state.root / f"{number}.OU"
    lines = [name for name in job["nodes"] for _ in range(job["want"][1]["ncpus"])]
    node_file.write_text("".join(f"{name}\n" for name in lines))
    environment = {
        "HOME": os.environ["HOME"], "PATH": os.environ["PATH"], "LOGNAME": user(), "USER": user(),
        "SHELL": "/bin/sh", "TK_LAB": os.environ["TK_LAB"], "TK_LAB_HOST": job["nodes"][0],
        "TMPDIR": os.environ["TMPDIR"], "PBS_ENVIRONMENT": "PBS_BATCH", "PBS_JOBID": job_id,
        "PBS_JOBNAME": job["Job_Name"], "PBS_NODEFILE": str(node_file), "PBS_NODENUM": "0",
        "PBS_O_HOST": "login", "PBS_O_WORKDIR": job["workdir"], "PBS_QUEUE": "workq",
        "PBS_TASKNUM": "1", **job["environment"],
    }  # fmt: skip
    with open(spool, "wb") as out:
        # As the real one does: the shell reads the script's path on its stdin.
        shell = subprocess.Popen(
            [*state.enter(job["nodes"][0]), job["shell"]], stdin=subprocess.PIPE,
            stdout=out, stderr=out, env=environment, cwd=environment["HOME"],
            start_new_session=True, umask=0o022,
        )  # fmt: skip
    assert shell.stdin is not None
    with state.locked():
        job = state.job(job_id)
        assert job is not None
        job["session"] = shell.pid
        state.save(job)
    shell.stdin.write(f"{state.root}/{number}.SC\n".encode())
    shell.stdin.close()
    exit_status = wait(state, job_id, shell, limit_s(job))
    if exit_status == -29:
        limit = int(limit_s(job))
        with open(spool, "ab") as out:
            out.write(b"=>> PBS: job killed: walltime %d exceeded limit %d\n" % (limit + 1, limit))
    while state.config["lingers"]:
        time.sleep(0.05)
    with state.locked():
        job = state.job(job_id)
        assert job is not None
        job["job_state"] = "E"
        state.save(job)
    shutil.copyfile(spool, job["Output_Path"].partition(":")[2])
    with state.locked():
        if exit_status == -29:
            job["comment"] = job.get("comment", "") + " and exceeded resource walltime"
        state.finish(job, -11 if exit_status == -29 and state.torque else exit_status)


def wait(state: State, job_id: str, shell: subprocess.Popen[bytes], walltime_s: float) -> int:
    """Until the shell has ended: by itself, at its walltime, or by qdel. Its Exit_status."""
    ends, killed_at, why = time.monotonic() + walltime_s, 0.0, 0
    while shell.poll() is None or (killed_at and sessions(attached(state, job_id))):
        now, job = time.monotonic(), state.job(job_id)
        everything = (shell.pid, *attached(state, job_id))
        if not killed_at and (now > ends or (job and job.get("kill"))):
            killed_at, why = now, (-29 if now > ends else 271)
            signal_sessions(everything, signal.SIGTERM)
        if killed_at and now > killed_at + KILL_DELAY_S:
            signal_sessions(everything, signal.SIGKILL)
        time.sleep(0.05)
    # What the shell leaves behind in its session goes at once.
    signal_sessions((shell.pid, *attached(state, job_id)), signal.SIGKILL)
    code = shell.returncode
    return why or (256 - code if code < 0 else code)


def qsig(state: State, argv: list[str]) -> None:
    """Signal every process of a job, as its node does."""
    given, (job_id,) = getopt.getopt(argv, "s:")
    job = state.job(job_id)
    if job is None or job["job_state"] != "R":
        fail(UNKNOWN_JOB, f"qsig: Unknown Job Id {job_id}")
    number = getattr(signal, f"SIG{dict(given)['-s']}")
    signal_sessions((job["session"], *attached(state, job_id)), number)


def attached(state: State, job_id: str) -> list[int]:
    """The sessions that were made a part of the job."""
    return list((state.job(job_id) or {}).get("attached", []))


def pbs_attach(state: State, argv: list[str]) -> None:
    """Make the session of a process a part of a job that runs here."""
    attach(state, "pbs_attach: tm_attach: no matching job found (17006)", argv, "p")


def pbs_track(state: State, argv: list[str]) -> None:
    """The same, as Torque has it."""
    attach(state, "pbs_track: MOM could not find job", argv, "a")
    print("Success!", file=sys.stderr)


def attach(state: State, refusal: str, argv: list[str], option: str) -> None:
    given = dict(getopt.getopt(argv, f"j:{option}:")[0])
    mine = state.torque == (option == "a")
    with state.locked():
        job = state.job(given["-j"])
        here = os.environ["TK_LAB_HOST"]
        if job is None or job["job_state"] != "R" or here not in job["nodes"] or not mine:
            fail(1, refusal)
        job.setdefault("attached", []).append(os.getsid(int(given[f"-{option}"])))
        state.save(job)


def signal_sessions(wanted: Iterable[int], number: int) -> None:
    for pid in sessions(wanted):
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def sessions(wanted: Iterable[int]) -> list[int]:
    """The processes of these sessions."""
    found, wanted = [], set(wanted)
    for entry in Path("/proc").iterdir():
        if wanted and entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) in wanted and fields[0] != "Z":
                found.append(int(entry.name))
    return found
