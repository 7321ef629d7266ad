"""qsub: reads a request, and has a node's side begin with the job."""

from __future__ import annotations

import getopt
import os
import re
import shlex
import sys
import time
from pathlib import Path

from tests.support.pbs_programs.state import (
    BAD_NODES,
    BAD_RESOURCE,
    BAD_VALUE,
    NODES,
    UNKNOWN_QUEUE,
    Job,
    State,
    ctime,
    fail,
    fits,
    start,
    user,
)


def qsub(state: State, argv: list[str]) -> None:
    try:
        options, rest = getopt.getopt(argv, "a:A:c:e:fhj:k:l:m:N:o:p:P:q:r:S:u:v:W:zVI")
    except getopt.GetoptError as error:
        fail(2, f"qsub: invalid option -- '{error.opt[:1]}'", "usage: qsub [-a date_time] ...")
    if len(rest) > 1:
        fail(2, "usage: qsub [-a date_time] ...")
    script = Path(rest[0]).read_text() if rest else sys.stdin.read()
    # The command line wins; of -l both count.
    options = [*directives(script), *options]
    given = {"-N": re.sub(r"[^\w.+-]", "_", Path(rest[0]).name)[:15]} if rest else {}
    given |= dict(options)
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
        start("mom", state, job["id"])
    if "-f" not in given and not state.torque:
        start("linger", state, *argv)
    if config["lost_replies"]:
        state.write_config({**config, "lost_replies": config["lost_replies"] - 1})
        fail(1, "qsub: Communication failure.")
    print(job["id"])


def directives(script: str) -> list[tuple[str, str]]:
    """The options in #PBS lines, up to the first line that is no comment."""
    found: list[tuple[str, str]] = []
    for line in script.split("\n"):
        if line.strip() and not line.lstrip().startswith("#"):
            break
        if line.startswith("#PBS "):
            words = shlex.split(line[5:], comments=True)
            found += getopt.getopt(words, "a:A:c:e:fhj:k:l:m:N:o:p:P:q:r:S:u:v:W:zVI")[0]
    return found


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
    job_id, name = state.next_id(), given.get("-N", "STDIN")
    output = given.get("-o", f"{name}.o{job_id.partition('.')[0]}")
    return {
        "id": job_id,
        "Job_Name": name,
        "Job_Owner": f"{user()}@login",
        "job_state": "H" if "-h" in given else "Q",
        "queue": "workq",
        "ctime": ctime(),
        "Hold_Types": "u" if "-h" in given else "n",
        "Output_Path": "login:" + os.path.abspath(output),
        "Resource_List": {**{f"n{k[1:]}": v for k, v in need.items()}, **limits},
        "workdir": os.getcwd(),
        "shell": given.get("-S", "/bin/bash"),
        "environment": dict(
            one.partition("=")[::2] for one in given.get("-v", "").split(",") if one
        ),
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


def linger(state: State, argv: list[str]) -> None:
    """qsub's own background process, which waits for the next submission."""
    time.sleep(60)
