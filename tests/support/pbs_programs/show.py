"""qstat, qselect, qdel, pbsnodes."""

from __future__ import annotations

import getopt
import json
import os
import re
import sys
import time
from typing import Any, NoReturn

from tests.support.pbs_programs.state import (
    FINISHED,
    NODES,
    UNKNOWN_JOB,
    UNKNOWN_QUEUE,
    Job,
    State,
    fail,
    limit_s,
    user,
)


def qstat(state: State, argv: list[str]) -> None:
    if argv == ["--version"]:
        if state.torque:
            fail(0, "Version: 6.1.2", "Commit: 0123456789abcdef")
        print("pbs_version = 23.06.06")
        return
    options, ids = getopt.gnu_getopt(argv, "fxF:BQn1")
    given = dict(options)
    if "-Q" in given:
        print("Queue: workq\n    queue_type = Execution\n    enabled = True")
        print(f"    started = {state.config['started']}\n\n")
        return
    if "-n" in given:
        print_table(state)
        return
    if "-B" in given:
        print("Server: login\n    server_state = Active")
        print(f"    scheduling = {state.config['scheduling']}")
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
            **job["environment"],
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
    # What C's strtod takes goes unquoted, whether or not JSON has such numbers.
    text = re.sub(r'(?<=:\t)"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+|inf|nan))"', r"\1", text)
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


def print_table(state: State) -> None:
    """As `qstat -n -1` shows the jobs that have not ended."""
    print("\nlogin:")
    for job in state.jobs().values():
        if job["job_state"] in "FC":
            continue
        clock = job["Resource_List"].get("walltime", "--")
        used = time.strftime("%H:%M", time.gmtime(time.time() - job.get("started", time.time())))
        print(
            f"{job['id']:<15} {user()[:8]:<8} {'workq':<8} {job['Job_Name'][:10]:<10}     --  "
            f"{job['want'][0]:>3} {job['want'][1]['ncpus']:>3}    -- {clock[:5]:>6} "
            f"{job['job_state']} {used} {job.get('exec_host', '--')}"
        )


def wrapped(line: str) -> str:
    parts = [line[:79], *(line[start : start + 71] for start in range(79, len(line), 71))]
    return "\n\t".join(parts)


def qselect(state: State, argv: list[str]) -> None:
    if state.torque and "-T" in argv:
        fail(2, "qselect: invalid option -- 'T'", "usage: qselect [-a ...]")
    given = dict(getopt.getopt(argv, "u:N:s:xT")[0])
    with state.locked():
        for job_id, job in state.jobs().items():
            owner = job["Job_Owner"].partition("@")[0]
            named = given.get("-N", job["Job_Name"]) == job["Job_Name"]
            if (job["job_state"] != "F" or "-x" in given) and owner == given["-u"] and named:
                print(job_id)


def qdel(state: State, ids: list[str]) -> None:
    code, errors = 0, []
    with state.locked():
        for job_id in ids:
            full, job = f"{job_id.partition('.')[0]}.login", state.job(job_id)
            if job is None:
                errors.append(f"qdel: Unknown Job Id {job_id}")
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
    if "json" in argv:
        print_nodes(state)
        return
    for name, size in NODES.items():
        print(f"{name}\n     Mom = {name}\n     ntype = PBS\n     state = free")
        for what, amount in size.items():
            print(f"     resources_available.{what} = {amount}")
        print()


def print_nodes(state: State) -> None:
    """As `pbsnodes -a -F json`: what each node has, and what jobs were given."""
    told: dict[str, Any] = {}
    for name, size in NODES.items():
        jobs = [
            job for job in state.jobs().values()
            if name in job.get("nodes", []) and job["job_state"] in "RE"
        ]  # fmt: skip
        taken = {what: sum(job["want"][1][what] for job in jobs) for what in size}
        up = name in state.config["nodes"]
        full = taken["ncpus"] >= size["ncpus"]
        told[name] = {
            "Mom": name, "ntype": "PBS",
            "state": ("job-busy" if full else "free") if up else "offline",
            "resources_available": {"host": name, "vnode": name, **size},
            "resources_assigned": taken,
            "last_state_change_time": int(time.time()),
        }  # fmt: skip
        if not up:
            told[name]["comment"] = "fan replaced on Friday"
    print(json.dumps({"timestamp": int(time.time()), "nodes": told}, indent="\t"))


def refuse_connection(program: str, argv: list[str]) -> NoReturn:
    """As a client of a server that is away."""
    if program == "qstat" and "json" in argv:
        print_json([], broken=False)
    words = f"{program}: cannot connect to server login (errno=15010)"
    if program == "qdel":
        words = "Couldn't connect to cluster: login"
    elif program == "pbsnodes":
        words = "pbsnodes: cannot connect to server login, error=15010"
    codes = {"qstat": 255, "pbsnodes": 1}
    fail(codes.get(program, 162), "Connection refused", words)
