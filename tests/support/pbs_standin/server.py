"""The stand-in's programs: `server.py PROGRAM STATE_DIR ARGS...`. Standard library only."""

from __future__ import annotations

import fcntl
import getopt
import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

NODES = {"node1": {"ncpus": 4, "ngpus": 2}, "node2": {"ncpus": 2, "ngpus": 0}}
DEFAULTS = {
    "dialect": "pbs",
    "history": True,
    "broken_json": False,
    "down": False,
    "lost_replies": 0,
    "nodes": list(NODES),
}
#: Low bytes of PBS's error numbers, as the recorded answers have them.
UNKNOWN_JOB, FINISHED, UNKNOWN_QUEUE, BAD_RESOURCE, BAD_VALUE, BAD_NODES = (
    153,
    35,
    170,
    187,
    166,
    241,
)
KILL_DELAY_S = 2.0
Job = dict[str, Any]


def user() -> str:
    return pwd.getpwuid(os.getuid()).pw_name


def ctime() -> str:
    return time.strftime("%a %b %d %H:%M:%S %Y")


def fail(code: int, *lines: str) -> NoReturn:
    for line in lines:
        print(line, file=sys.stderr)
    sys.exit(code)


class State:
    """The server's memory: one file a job."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @contextmanager
    def locked(self) -> Iterator[State]:
        with open(self.root / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield self

    @property
    def config(self) -> dict[str, Any]:
        config: dict[str, Any] = json.loads((self.root / "config.json").read_text())
        return config

    def write_config(self, config: dict[str, Any]) -> None:
        self._write(self.root / "config.json", config)

    @property
    def torque(self) -> bool:
        return bool(self.config["dialect"] == "torque")

    def jobs(self) -> dict[str, Job]:
        files = sorted(self.root.glob("*.job"), key=lambda file: int(file.stem))
        jobs = [json.loads(file.read_text()) for file in files]
        return {job["id"]: job for job in jobs}

    def job(self, job_id: str) -> Job | None:
        number = job_id.partition(".")[0]
        file = self.root / f"{number}.job"
        return json.loads(file.read_text()) if file.exists() else None

    def save(self, job: Job) -> None:
        job["mtime"] = ctime()
        self._write(self.root / f"{job['id'].partition('.')[0]}.job", job)

    def next_id(self) -> str:
        file = self.root / "sequence"
        number = int(file.read_text()) + 1 if file.exists() else 1
        file.write_text(str(number))
        return f"{number}.login"

    def delete(self, job_id: str, who: str) -> None:
        job = self.job(job_id)
        assert job is not None
        comment = job.get("comment")
        if job["job_state"] in "QH":
            if comment:
                job["comment"] = f"{comment} and terminated"
            self.finish(job)
        else:
            job["kill"] = True
            if not self.torque:
                job["comment"] = f"{comment} and terminated by {who}"
            self.save(job)

    def finish(self, job: Job, exit_status: int | None = None) -> None:
        """F, or C, or forgotten, as the server is set up."""
        if exit_status is not None:
            job["Exit_status"] = exit_status
        if self.torque:
            job["job_state"] = "C"
        elif self.config["history"]:
            job["job_state"] = "F"
        else:
            (self.root / f"{job['id'].partition('.')[0]}.job").unlink()
            return
        self.save(job)

    @staticmethod
    def _write(path: Path, data: Any) -> None:
        temporary = path.with_suffix(".new")
        temporary.write_text(json.dumps(data))
        temporary.replace(path)


# --- qsub --------------------------------------------------------------------------------------


def qsub(state: State, argv: list[str]) -> None:
    try:
        options, rest = getopt.getopt(argv, "a:A:c:e:hj:k:l:m:N:o:p:P:q:r:S:u:v:W:zVI")
    except getopt.GetoptError as error:
        fail(2, f"qsub: invalid option -- '{error.opt[:1]}'", "usage: qsub [-a date_time] ...")
    if rest:
        fail(2, "usage: qsub [-a date_time] ...")
    script = sys.stdin.read()
    given = dict(options)
    lines = [value for key, value in options if key == "-l"]
    limits = dict(part.partition("=")[::2] for line in lines for part in split(line))
    with state.locked():
        job = make_job(state, given, limits)
        state.save(job)
        number = job["id"].partition(".")[0]
        (state.root / f"{number}.SC").write_text(script)
        (state.root / f"{number}.SC").chmod(0o700)
        config = state.config
    if "-h" not in given:
        start_mom(state, job)
    if config["lost_replies"]:
        state.write_config({**config, "lost_replies": config["lost_replies"] - 1})
        fail(1, "qsub: Communication failure.")
    print(job["id"])


def split(line: str) -> list[str]:
    """`nodes=1:ppn=2,walltime=1:00` at its commas; select has none."""
    return line.split(",") if not line.startswith("select") else [line]


def make_job(state: State, given: dict[str, str], limits: dict[str, str]) -> Job:
    torque = state.torque
    if given.get("-q", "workq") != "workq":
        fail(UNKNOWN_QUEUE, "qsub: Unknown queue")
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_.+-]*", given.get("-N", "STDIN")):
        fail(2, "qsub: illegal -N value", "usage: qsub [-a date_time] ...")
    if "select" in limits and torque:
        fail(BAD_RESOURCE, "qsub: submit error (Unknown resource type  Resource_List.select)")
    if not re.fullmatch(r"[0-9:]+", limits.get("walltime", "0")):
        fail(BAD_VALUE, "qsub: Illegal attribute or resource value Resource_List.walltime")
    count, need, host = parse_request(limits, torque)
    if torque and (
        host not in (None, *NODES) or not any(fits(need, size) for size in NODES.values())
    ):
        fail(
            BAD_RESOURCE,
            "qsub: submit error (Job exceeds queue resource limits MSG=cannot "
            "locate feasible nodes (nodes file is empty or requested nodes exceed all systems))",
        )
    return {
        "id": state.next_id(),
        "Job_Name": given.get("-N", "STDIN"),
        "Job_Owner": f"{user()}@login",
        "job_state": "H" if "-h" in given else "Q",
        "queue": "workq",
        "ctime": ctime(),
        "Hold_Types": "u" if "-h" in given else "n",
        "Output_Path": "login:" + os.path.abspath(given.get("-o", "STDIN.o")),
        "Resource_List": {**{f"n{k[1:]}": v for k, v in need.items()}, **limits},
        "shell": given.get("-S", "/bin/bash"),
        "want": [count, need, host],
    }


def parse_request(limits: dict[str, str], torque: bool) -> tuple[int, dict[str, int], str | None]:
    """How many nodes, what of each, and which."""
    words = limits.get("nodes" if torque else "select", limits.get("nodes", "1")).split(":")
    need, host, count = {"ncpus": 1, "ngpus": 0}, None, 1
    first, *rest = words
    if first.isdigit():
        count = int(first)
    else:
        host = first
    for word in rest:
        name, _, value = word.partition("=")
        if name == "gpus" and not torque:
            fail(BAD_NODES, "qsub: node(s) specification error")
        name = {"ppn": "ncpus", "gpus": "ngpus"}.get(name, name)
        if name in need:
            need[name] = int(value)
        elif name == "host":
            host = value
        elif name != "mem":
            fail(BAD_RESOURCE, f"qsub: Unknown resource: {name}")
    return count, need, host


def fits(need: dict[str, int], size: dict[str, int]) -> bool:
    return all(size[name] >= amount for name, amount in need.items())


# --- the node's side ---------------------------------------------------------------------------


def start_mom(state: State, job: Job) -> None:
    subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, "mom", str(state.root), job["id"]],
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


def limit_s(job: Job) -> float:
    clock = job["Resource_List"].get("walltime")
    if clock is None:
        return float("inf")
    parts = [int(part) for part in clock.split(":")]
    return float(sum(part * 60**power for power, part in enumerate(reversed(parts))))


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


# --- qstat, qselect, qdel, pbsnodes ------------------------------------------------------------


def qstat(state: State, argv: list[str]) -> None:
    if argv == ["--version"]:
        if state.torque:
            fail(0, "Version: 6.1.2", "Commit: 0123456789abcdef")
        print("pbs_version = 23.06.06")
        return
    options, ids = getopt.gnu_getopt(argv, "fxF:B")
    given = dict(options)
    if "-B" in given:
        print("Server: login\n    server_state = Active")
        if not state.torque:
            print(f"    job_history_enable = {state.config['history']}")
        print("    pbs_version = 23.06.06\n\n")
        return
    if state.torque and ("-x" in given or "-F" in given):
        fail(2, "qstat: invalid option -- 'F'", "usage: qstat [-f] ...")
    with state.locked():
        found, errors, code = select(state, ids, history="-x" in given)
    if given.get("-F") == "json":
        print_json(found, broken=state.config["broken_json"])
    else:
        for job in found:
            print_full(job, torque=state.torque)
    fail(code, *errors) if errors else sys.exit(code)


def select(state: State, ids: list[str], *, history: bool) -> tuple[list[Job], list[str], int]:
    if history and not state.config["history"]:
        said = "qstat: PBS is not configured to maintain job history"
        return [], [f"{said} {job_id}" for job_id in ids], 0
    found, errors, code = [], [], 0
    jobs = state.jobs()
    for job_id in ids or [one for one in jobs if jobs[one]["job_state"] != "F"]:
        if not re.match(r"[0-9]", job_id):
            return [], [f"qstat: Unknown queue destination {job_id}"], UNKNOWN_QUEUE
        job = state.job(job_id)
        full = f"{job_id.partition('.')[0]}.login"
        if job is None:
            word = "Unknown Job Id Error" if state.torque else "Unknown Job Id"
            errors.append(f"qstat: {word} {full}")
            code = UNKNOWN_JOB
        elif job["job_state"] == "F" and not history:
            errors.append(
                f"qstat: {full} Job has finished, use -x or -H to obtain historical job information"
            )
            code = FINISHED
        else:
            found.append(job)
    return found, errors, code


def attributes(job: Job) -> dict[str, Any]:
    """What is told of a job, in PBS's order."""
    names = (
        "Job_Name", "Job_Owner", "resources_used", "job_state", "queue", "server", "Checkpoint",
        "ctime", "Error_Path", "exec_host", "exec_vnode", "Hold_Types", "Join_Path", "Keep_Files",
        "Mail_Points", "mtime", "Output_Path", "Priority", "qtime", "Rerunable", "Resource_List",
        "stime", "session_id", "jobdir", "substate", "Variable_List", "comment", "etime",
        "Exit_status", "project", "Submit_Host",
    )  # fmt: skip
    told = {
        **job, "server": "login", "Checkpoint": "u", "Join_Path": "oe", "Keep_Files": "n",
        "Mail_Points": "a", "Priority": 0, "Rerunable": "False", "qtime": job["ctime"],
        "Error_Path": job["Output_Path"], "project": "_pbs_project_default",
        "Submit_Host": "login",
        "Variable_List": {
            "PBS_O_HOME": os.environ.get("HOME", "/"), "PBS_O_LOGNAME": user(),
            "PBS_O_PATH": os.environ.get("PATH", ""), "PBS_O_HOST": "login",
        },
    }  # fmt: skip
    if "started" in job:
        # The node tells it now and then.
        used = int(time.time() - job["started"]) // 10 * 10
        clock = time.strftime("%H:%M:%S", time.gmtime(used))
        told["resources_used"] = {"cput": "00:00:00", "mem": "0kb", "walltime": clock}
    return {name: told[name] for name in names if name in told}


def print_json(jobs: list[Job], *, broken: bool) -> None:
    told: dict[str, Any] = {
        "timestamp": int(time.time()), "pbs_version": "23.06.06", "pbs_server": "login",
    }  # fmt: skip
    if jobs:
        told["Jobs"] = {job["id"]: attributes(job) for job in jobs}
    text = json.dumps(told, indent="\t", separators=(",", ":\t"))
    # As in openpbs issue 1255: what is in a value is not quoted.
    print(text.replace('"queue":\t"workq"', '"queue":\t"work"q"') if broken else text)


def print_full(job: Job, *, torque: bool) -> None:
    print(f"Job Id: {job['id']}")
    for name, value in attributes(job).items():
        if torque and name == "Exit_status":
            name = "exit_status"
        if name == "Variable_List":
            print(f"    {name} = " + ",\n\t".join(f"{key}={one}" for key, one in value.items()))
        elif isinstance(value, dict):
            for key, one in value.items():
                print(wrapped(f"    {name}.{key} = {one}"))
        else:
            print(wrapped(f"    {name} = {value}"))
    if torque and "started" in job and job["job_state"] == "R":
        left = limit_s(job) - (time.time() - job["started"])
        if left != float("inf"):
            print(f"    Walltime.Remaining = {int(left)}")
    print("\n")


def wrapped(line: str) -> str:
    parts = [line[:79], *(line[start : start + 71] for start in range(79, len(line), 71))]
    return "\n\t".join(parts)


def qselect(state: State, argv: list[str]) -> None:
    given = dict(getopt.getopt(argv, "u:N:s:")[0])
    with state.locked():
        for job_id, job in state.jobs().items():
            owner = job["Job_Owner"].partition("@")[0]
            named = given.get("-N", job["Job_Name"]) == job["Job_Name"]
            if job["job_state"] != "F" and owner == given["-u"] and named:
                print(job_id)


def qdel(state: State, ids: list[str]) -> None:
    code, errors = 0, []
    with state.locked():
        for job_id in ids:
            full, job = f"{job_id.partition('.')[0]}.login", state.job(job_id)
            if job is None:
                errors.append(f"qdel: Unknown Job Id {full}")
                code = UNKNOWN_JOB
            elif job["job_state"] == "F":
                errors.append(f"qdel: Job has finished {full}")
                code = FINISHED
            elif job["job_state"] == "C":
                errors.append(
                    "qdel: Request invalid for state of job MSG=invalid state for job - "
                    f"COMPLETE {full}"
                )
                code = UNKNOWN_QUEUE
            else:
                state.delete(job_id, f"{user()}@login")
    fail(code, *errors)


def pbsnodes(state: State, argv: list[str]) -> None:
    for name, size in NODES.items():
        print(f"{name}\n     Mom = {name}\n     ntype = PBS\n     state = free")
        for what, amount in size.items():
            print(f"     resources_available.{what} = {amount}")
        print()


def main() -> None:
    program, root, *argv = sys.argv[1:]
    state = State(Path(root))
    if program != "mom" and state.config["down"] and argv != ["--version"]:
        fail(111, "Connection refused", f"{program}: cannot connect to server login (errno=111)")
    commands = {"qsub": qsub, "qstat": qstat, "qselect": qselect, "qdel": qdel,
                "pbsnodes": pbsnodes, "mom": mom}  # fmt: skip
    commands[program](state, argv)


if __name__ == "__main__":
    main()
