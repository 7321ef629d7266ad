"""qsub: its argv for the job, for PBS and for Torque, and the options that tk refuses.

Values go to qsub as argv words, never into `#PBS` lines, so that none can add a line of its
own. Every value is checked against the alphabet it may have.
"""

from __future__ import annotations

import re

from tunnelkit.errors import UsageError
from tunnelkit.model import Completed, ResourceRequest, check_host, check_job_name
from tunnelkit.scheduler.base import Command
from tunnelkit.scheduler.pbs.errors import job_id
from tunnelkit.scheduler.pbs.parse import format_seconds

_NAME = re.compile(r"[A-Za-z0-9_.@-]+")
_MEM = re.compile(r"([0-9]+)([KMGTkmgt]?)")
#: Further properties of a chunk or node: `gpu_model=a100:scratch=true`, `bigmem:ib`.
_CHUNK = re.compile(r"[A-Za-z0-9_.-]+(=[A-Za-z0-9_.,-]+)?(:[A-Za-z0-9_.-]+(=[A-Za-z0-9_.,-]+)?)*")
_SUBMITTED = re.compile(r"([0-9]+(?:\.[A-Za-z0-9_.:-]+)?)")

_LOG = "tk reads the job's log from where it put it"
_BY_TK = "tk sets it itself"
#: option -> why it would break the job
_REFUSED = {
    "N": "tk finds its job again by the name it gave",
    "o": _LOG,
    "e": _LOG,
    "j": _LOG,
    "k": _LOG,
    "J": "one allocation is one job",
    "t": "one allocation is one job",
    "I": "the job's body is tk's own; for a shell there is `tk shell`",
    "X": "the job's body is tk's own",
    "S": "the job's script is sh",
    "C": "the job's script has no directives",
    "r": "set requeue under [allocation], or: tk up --requeue",
    "V": "it would copy the whole environment, secrets too, to where others can read it",
    "z": "tk needs the job's id",
    "f": _BY_TK,
    "q": "set partition (the queue) under [allocation] instead",
    "h": "tk would wait for a job that never starts",
    "u": "the job must be your own",
}
#: Resources that have a setting of their own.
_SET_ELSEWHERE = {
    "select": "gpus, cpus, mem, nodes and constraint make the select line",
    "nodes": "gpus, cpus, nodes and constraint make the nodes line",
    "walltime": "set time under [allocation] instead",
}


def server_of(queue: str | None) -> str:
    """Return the server of `queue@server`; "" for the default one, or a value that qsub refuses."""
    return queue.partition("@")[2] if queue and _NAME.fullmatch(queue) else ""


def submit_command(
    program: str,
    request: ResourceRequest,
    resources: list[str],
    *,
    job_name: str,
    body: str,
    log_dir: str,
) -> Command:
    """Return the qsub call. Raises UsageError.

    resources: the words of the dialect for the requested resources."""
    argv = [program, "-N", check_job_name(job_name), "-S", "/bin/sh"]
    argv += ["-r", "y" if request.requeue else "n"]
    argv += ["-j", "oe", "-o", _log_file(log_dir, job_name), *resources]
    if request.time_limit_s is not None:
        argv += ["-l", f"walltime={format_seconds(positive(request.time_limit_s, 'time'))}"]
    for option, value, what in (
        ("-q", request.partition, "partition"),
        ("-A", request.account, "account"),
    ):
        if value is not None:
            argv += [option, checked(_NAME, value, what)]
    for line in request.extra:
        argv += check_extra(line)
    if "\0" in body:
        raise UsageError("the job's script holds a NUL byte", hint="correct [cluster] prologue")
    # `:` is a command, and qsub reads #PBS lines only before the first one: a prologue that
    # holds such a line can't change the job.
    return Command(tuple(argv), f"#!/bin/sh\n:\n{body}".encode())


def pbs_resources(request: ResourceRequest) -> list[str]:
    """Return `-l select=...`: one chunk per node, each on its own node. Raises UsageError."""
    chunk = [str(positive(request.nodes, "nodes"))]
    if request.cpus is not None:
        chunk.append(f"ncpus={positive(request.cpus, 'cpus')}")
    # Where a site counts no GPUs, even 0 of them would be refused.
    if request.gpus:
        chunk.append(f"ngpus={positive(request.gpus, 'gpus')}")
    if request.mem is not None:
        number, unit = _memory(request.mem)
        chunk.append(f"mem={number}{unit}")
    if request.node is not None:
        chunk.append(f"host={check_host(request.node)}")
    if request.constraint is not None:
        chunk.append(checked(_CHUNK, request.constraint, "constraint"))
    if request.reservation is not None:
        raise UsageError(
            "a PBS reservation is a queue of its own",
            hint=f"give it as the queue: --partition {request.reservation}",
        )
    if request.qos is not None:
        raise UsageError(
            "PBS has no QOS", hint="a queue (partition) or a project says the same there"
        )
    words = ["-l", f"select={':'.join(chunk)}"]
    place = ["scatter"] if request.nodes > 1 else []
    place += ["excl"] if request.exclusive else []
    return [*words, "-l", f"place={':'.join(place)}"] if place else words


def torque_resources(request: ResourceRequest) -> list[str]:
    """Return `-l nodes=...`. Raises UsageError."""
    nodes = positive(request.nodes, "nodes")
    if request.node is None:
        spec = [str(nodes)]
    elif nodes == 1:
        spec = [check_host(request.node)]
    else:
        raise UsageError(
            "Torque takes either the name of a node or a number of nodes",
            hint="leave out the node, or --nodes",
        )
    if request.cpus is not None:
        spec.append(f"ppn={positive(request.cpus, 'cpus')}")
    if request.gpus:
        spec.append(f"gpus={positive(request.gpus, 'gpus')}")
    if request.constraint is not None:
        spec.append(checked(_CHUNK, request.constraint, "constraint"))
    words = ["-l", f"nodes={':'.join(spec)}"]
    if request.mem is not None:
        # Torque counts the memory of the whole job.
        number, unit = _memory(request.mem)
        words += ["-l", f"mem={number * nodes}{unit}"]
    if request.qos is not None:
        words += ["-l", f"qos={checked(_NAME, request.qos, 'qos')}"]
    if request.reservation is not None:
        words += ["-l", f"advres={checked(_NAME, request.reservation, 'reservation')}"]
    if request.exclusive:
        words += ["-l", "naccesspolicy=singlejob"]
    return words


def _memory(text: str) -> tuple[int, str]:
    """Return `16G` as (16, "gb"). A bare number is megabytes, as in Slurm."""
    match = _MEM.fullmatch(text)
    if not match:
        raise UsageError(f"mem {text!r} is not a size", hint="such as 16G or 500M")
    return int(match[1]), f"{match[2].lower() or 'm'}b"


def checked(pattern: re.Pattern[str], value: str, what: str) -> str:
    """Return `value` if it is of that alphabet. Raises UsageError."""
    if value.startswith("-") or not pattern.fullmatch(value):
        raise UsageError(
            f"{what} {value!r} is not a value that qsub takes",
            hint="check the flag, or that key under [allocation]",
        )
    return value


def positive(value: int, what: str) -> int:
    """Return `value` if it is at least 1. Raises UsageError."""
    if value < 1:
        raise UsageError(f"{what} is {value}, but must be at least 1", hint="ask for more")
    return value


def _log_file(log_dir: str, job_name: str) -> str:
    # A colon would be read as `host:path`, a comma as the next attribute.
    if not log_dir or log_dir.startswith("-") or re.search(r"[\x00-\x1f\\:,]", log_dir):
        raise UsageError(
            f"{log_dir!r} can't be a directory for the job's log",
            hint="its path may hold no control character, colon, comma or backslash",
        )
    # qsub knows no `~`, but takes relative names from where it runs: ssh's home.
    path = log_dir[2:] if log_dir.startswith("~/") else log_dir
    return f"{path.rstrip('/')}/{job_name}.log" if path else f"{job_name}.log"


def check_extra(line: str) -> list[str]:
    """Return the words of one line such as `-l place=excl` or `-Pproject`: option and value.

    Raises UsageError if the line is not an option, or would break the job.
    """
    if re.search(r"[\x00-\x1f\x7f]", line):
        raise UsageError(
            f"qsub option {line!r} holds a control character", hint="correct [allocation] extra"
        )
    match = re.fullmatch(r"-([A-Za-z])\s*(.*)", line.strip())
    if not match:
        raise UsageError(
            f"{line!r} is not a qsub option",
            hint='write an option and its value as one entry: extra = ["-l place=excl"]',
        )
    option, value = match.groups()
    why = _REFUSED.get(option)
    if option == "W" and re.search(r"\b(block|interactive|umask)\b", value):
        why = "tk would hang until the job ends, or lose its log"
    if option == "l":
        names = [part.partition("=")[0].strip() for part in value.split(",")]
        why = next((_SET_ELSEWHERE[name] for name in names if name in _SET_ELSEWHERE), None)
    if why:
        raise UsageError(
            f"qsub option {line!r} can't be used for a tk job",
            cause=why,
            hint="take it out of [allocation] extra",
        )
    return [f"-{option}", value] if value else [f"-{option}"]


def parse_submit(done: Completed) -> str:
    """Return the full job id that qsub printed. Raises SchedulerError."""
    refused = "the scheduler did not take the job"
    return job_id(done, _SUBMITTED, program="qsub", lists="qstat", refused=refused)
