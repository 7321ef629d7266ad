"""The node's side: a job from its place in the queue to its end, in a process of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.support.pbs_standin.state import NODES, SERVER, Job, State, ctime, fits, limit_s, user

KILL_DELAY_S = 2.0


def start_mom(state: State, job: Job) -> None:
    subprocess.Popen(
        [sys.executable, *SERVER, "mom", str(state.root), job["id"]],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True, cwd="/",
    )  # fmt: skip


def mom(state: State, argv: list[str]) -> None:
    """One job, from its place in the queue to its end."""
    job_id = argv[0]
    while True:
        with state.locked():
            job = state.job(job_id)
            if job is None or job["job_state"] in "FC":
                return
            if place(state, job):
                break
        time.sleep(0.05)
    run(state, job_id)


def place(state: State, job: Job) -> bool:
    """Give the job its nodes, or say why not."""
    count, need, host = job["want"]
    free = {name: dict(NODES[name]) for name in state.config["nodes"]}
    for other in state.jobs().values():
        for name in other.get("nodes", []) if other["job_state"] in "RE" else []:
            for what, amount in other["want"][1].items():
                if name in free:
                    free[name][what] -= amount
    known = [name for name in NODES if host in (None, name)]
    able = [name for name in known if fits(need, NODES[name])]
    nodes = [name for name in able if name in free and fits(need, free[name])][:count]
    if len(nodes) < count:
        comment = why_not(need, host, known, able, free, count)
        if job.get("comment") != comment and not state.torque:
            job["comment"] = comment
            state.save(job)
        return False
    stamp = time.strftime("%a %b %d at %H:%M")
    vnodes = "+".join(f"({name}:ncpus={need['ncpus']}:ngpus={need['ngpus']})" for name in nodes)
    job.update(job_state="R", nodes=nodes, stime=ctime(), started=time.time())
    job.update(exec_host=exec_host(state, nodes, need["ncpus"]), exec_vnode=vnodes)
    if not state.torque:
        job["comment"] = f"Job run at {stamp} on {vnodes}"
    state.save(job)
    return True


def why_not(
    need: dict[str, int], host: str | None, known: list[str], able: list[str],
    free: dict[str, dict[str, int]], count: int,
) -> str:  # fmt: skip
    lacks = "Insufficient amount of resource:"
    if not known:
        return f"Can Never Run: {lacks} host ({host} != {','.join(reversed(NODES))})"
    if len(able) < count:
        if count > 1:
            return "Can Never Run: Not enough total nodes available"
        what = next(
            name for name in need if not any(fits({name: need[name]}, NODES[one]) for one in known)
        )
        most = max(NODES[name][what] for name in known)
        return f"Can Never Run: {lacks} {what} (R: {need[what]} A: {most} T: {most})"
    if not any(name in free for name in able):
        return f"Not Running: {lacks} host "
    if count > 1:
        return "Not Running: Not enough free nodes available"
    what = next(
        name for name in need
        if not any(free[one][name] >= need[name] for one in able if one in free)
    )  # fmt: skip
    one = able[0]
    return (
        f"Not Running: {lacks} {what} (R: {need[what]} A: {free[one][what]} T: {NODES[one][what]})"
    )


def exec_host(state: State, nodes: list[str], ncpus: int) -> str:
    if state.torque:
        return "+".join(f"{name}/0" if ncpus == 1 else f"{name}/0-{ncpus - 1}" for name in nodes)
    return "+".join(f"{name}/0" + (f"*{ncpus}" if ncpus > 1 else "") for name in nodes)


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
        "PBS_O_HOST": "login", "PBS_O_WORKDIR": os.environ["HOME"], "PBS_QUEUE": "workq",
        "PBS_TASKNUM": "1",
    }  # fmt: skip
    with open(spool, "wb") as out:
        # As the real one does: the shell reads the script's path on its stdin.
        shell = subprocess.Popen(
            [job["shell"]], stdin=subprocess.PIPE, stdout=out, stderr=out, env=environment,
            cwd=environment["HOME"], start_new_session=True,
        )  # fmt: skip
    assert shell.stdin is not None
    shell.stdin.write(f"{state.root}/{number}.SC\n".encode())
    shell.stdin.close()
    exit_status = wait(state, job_id, shell, limit_s(job))
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
    while shell.poll() is None:
        now, job = time.monotonic(), state.job(job_id)
        if not killed_at and (now > ends or (job and job.get("kill"))):
            killed_at, why = now, (-29 if now > ends else 271)
            signal_session(shell.pid, signal.SIGTERM)
        if killed_at and now > killed_at + KILL_DELAY_S:
            signal_session(shell.pid, signal.SIGKILL)
        time.sleep(0.05)
    # What the shell leaves behind in its session goes at once.
    signal_session(shell.pid, signal.SIGKILL)
    code = shell.returncode
    return why or (256 - code if code < 0 else code)


def signal_session(session: int, number: int) -> None:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == session:
                    os.kill(int(entry.name), number)
            except (OSError, IndexError):
                continue
