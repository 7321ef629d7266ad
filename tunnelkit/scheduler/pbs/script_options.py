"""The options of PBS's and Torque's batch scripts, the limits of queues, the variables of a job.

PBS has no `--test-only`: what a queue would refuse is compared with its limits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from tunnelkit.diagnosis.ended.words import clock
from tunnelkit.diagnosis.sizes import size
from tunnelkit.scheduler.base import LoginPrograms
from tunnelkit.scheduler.pbs.inspect.request import chunks_of, count_of, needs_of, size_bytes
from tunnelkit.scheduler.pbs.parse import format_seconds, parse_attributes, seconds
from tunnelkit.scheduler.script_options import (
    DryRun,
    Refusal,
    ScriptRequest,
    Wanted,
    WholeRequest,
    option_lines,
    split_words,
)

#: qsub's options with a value; the others are flags. Torque has some more than PBS.
_WITH_VALUE = frozenset("aAbcCdDeFgIJjklLmMNopPqrStTuvWw") - frozenset("I")
#: tk's name for memory on one node: `-l mem` counts the whole job.
_NODE_MEM = "tk_node_mem"
#: Variables of the submission that a job has with PBS_O_ before them.
_SUBMISSION = ("HOME", "LANG", "LOGNAME", "MAIL", "PATH", "SHELL", "TZ")
# $1 the directory of qstat, or "". A server may answer only one of the two.
_ASK = r"""
PATH=$PATH${1:+:$1}
qstat -Bf 2>&1 || exit
printf 'tk-queues\n'
qstat -Qf 2>&1
"""


class PbsScriptOptions(LoginPrograms):
    """See `ScriptOptions`."""

    name = "pbs"
    mark = "#PBS"

    def takes_next(self, option: str) -> bool:
        """See `ScriptOptions.takes_next`."""
        if option.startswith("--"):
            return False
        for at, letter in enumerate(option[1:], 2):
            if letter in _WITH_VALUE:
                return at == len(option)
        return False

    def words(self, script: bytes) -> list[str]:
        """See `ScriptOptions.words`."""
        lines, _ = option_lines(script, b"#PBS")
        return [word for line in lines for word in split_words(line)]

    def late(self, script: bytes) -> list[int]:
        """See `ScriptOptions.late`."""
        return option_lines(script, b"#PBS")[1]

    def request(self, words: Sequence[str]) -> ScriptRequest:
        """See `ScriptOptions.request`."""
        options: dict[str, str] = {}
        resources: dict[str, str] = {}
        for name, value in self._pairs(words):
            if name == "l":
                resources.update(_resources(value))
            else:
                options[name] = value
        return _request(options, resources)

    def _pairs(self, words: Sequence[str]) -> Iterator[tuple[str, str]]:
        rest = list(words)
        while rest:
            word = rest.pop(0)
            for at, letter in enumerate(word[1:] if word.startswith("-") else "", 2):
                if letter in _WITH_VALUE:
                    yield letter, word[at:] or (rest.pop(0) if rest else "")
                    break
                yield letter, ""

    def asking(self, wanted: Wanted) -> list[str]:
        """See `ScriptOptions.asking`."""
        found = []
        if wanted.mem is not None:
            unit = "" if wanted.mem[-1:].isalpha() else "m"
            found += ["-l", f"{_NODE_MEM}={wanted.mem.lower()}{unit}b"]
        if wanted.cpus is not None:
            found += ["-l", f"ncpus={wanted.cpus}"]
        # Where a site counts no GPUs, even 0 of them would be refused.
        if wanted.gpus:
            found += ["-l", f"ngpus={wanted.gpus}"]
        if wanted.time_s is not None:
            found += ["-l", f"walltime={format_seconds(wanted.time_s)}"]
        for option, value in (("-q", wanted.partition), ("-A", wanted.account)):
            if value is not None:
                found += [option, value]
        return found

    def dry_run(self, script: bytes, options: Sequence[str]) -> DryRun:
        """See `ScriptOptions.dry_run`."""
        return DryRun(("sh", "-c", _ASK, "sh", self.directory_of("qstat")))

    def refusals(self, request: ScriptRequest, code: int, text: str) -> list[Refusal] | None:
        """See `ScriptOptions.refusals`."""
        about_server, mark, about_queues = text.partition("\ntk-queues\n")
        if code or not mark:
            return None
        queues = dict(_queues(about_queues))
        name = request.partition or parse_attributes(about_server).get("default_queue", "")
        if not name and len(queues) == 1:
            (name,) = queues
        if not name:
            return None  # a server may hide which queue is its default
        queue = queues.get(name.partition("@")[0])
        if queue is None:
            there = ", ".join(sorted(queues)[:8])
            return [Refusal(f"there is no queue {name}: there are {there}", "-q QUEUE")]
        return list(_refused(name, queue, request))

    def variables(
        self, request: ScriptRequest, host: str, directory: str, here: Mapping[str, str]
    ) -> dict[str, str]:
        """See `ScriptOptions.variables`. PBS_NODEFILE is the run's own file."""
        found = {
            "PBS_JOBID": "0.simulate", "PBS_JOBNAME": request.name,
            "PBS_ENVIRONMENT": "PBS_BATCH", "PBS_O_WORKDIR": directory, "PBS_O_HOST": host,
            "PBS_O_QUEUE": request.partition, "PBS_QUEUE": request.partition or "simulate",
            "PBS_NODENUM": "0", "PBS_TASKNUM": "1", "NCPUS": str(request.cpus),
            "PBS_NP": str(request.cpus), "PBS_NUM_PPN": str(request.cpus), "PBS_NUM_NODES": "1",
            "OMP_NUM_THREADS": str(request.cpus), "PBS_O_SYSTEM": "Linux",
            "PBS_JOBDIR": here.get("HOME", directory),
        }  # fmt: skip
        found |= {f"PBS_O_{name}": here[name] for name in _SUBMISSION if name in here}
        if request.time_s is not None:
            found["PBS_WALLTIME"] = str(request.time_s)  # Torque's
        if request.array_first is not None:
            first = str(request.array_first)
            found |= {
                "PBS_ARRAY_INDEX": first, "PBS_ARRAYID": first, "PBS_ARRAY_ID": "0[].simulate",
                "PBS_JOBID": f"0[{first}].simulate",
            }  # fmt: skip
        return found | dict(request.by_options)


class TorqueScriptOptions(PbsScriptOptions):
    """Torque's: the same for what is read here."""

    name = "torque"


def _resources(text: str) -> Iterator[tuple[str, str]]:
    """Return the resources of one -l: `select=...` holds commas in no form that is read here."""
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if equals:
            yield name.strip().lower(), value.strip()


def _request(options: Mapping[str, str], resources: Mapping[str, str]) -> ScriptRequest:
    select = resources.get("select") or resources.get("nodes") or ""
    chunks = chunks_of(select)
    nodes, need, together = needs_of(chunks, resources.get("place", ""))
    memory, all_memory = need.mem_bytes, together.mem_bytes
    if job_memory := size_bytes(resources.get("mem", "")):
        memory, all_memory = job_memory // nodes, job_memory
    if node_memory := size_bytes(resources.get(_NODE_MEM, "")):
        memory, all_memory = node_memory, node_memory * nodes
    unread = [
        f"-l {name}={resources[name]}"
        for name, read in (("mem", size_bytes), ("walltime", seconds), ("ncpus", count_of))
        if name in resources and read(resources[name]) is None
    ]
    array = re.match(r"[0-9]{1,9}", options.get("J") or options.get("t") or "")
    asked_cpus = count_of(resources.get("ncpus", ""))
    asked_gpus = count_of(resources.get("ngpus", "")) or 0
    threads = chunks[0].resources.get("ompthreads", "")
    all_gpus = sum(one.count for one in together.gpus)
    whole = WholeRequest(
        cpus=max(1, asked_cpus * nodes if asked_cpus else together.cpus),
        mem_bytes=all_memory,
        gpus=all_gpus or asked_gpus * nodes,
    )
    return ScriptRequest(
        name=options.get("N", ""),
        nodes=nodes,
        tasks=1,
        cpus=max(1, asked_cpus or need.cpus),
        cpus_per_task=None,
        mem_bytes=memory,
        gpus=sum(one.count for one in need.gpus) if all_gpus else asked_gpus,
        time_s=seconds(resources.get("walltime", "")) or None,
        array_first=int(array[0]) if array else None,
        directory=options.get("d") or options.get("w") or "",
        outputs=tuple(path.rpartition(":")[2] for name in "oe" if (path := options.get(name, ""))),
        partition=options.get("q", ""),
        account=options.get("A", ""),
        slots=max(1, chunks[0].number("mpiprocs" if "select" in resources else "ncpus")),
        whole=whole,
        by_options=(("OMP_NUM_THREADS", threads),) if count_of(threads) else (),
        unread=tuple(unread),
    )


def _queues(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    for part in re.split(r"^Queue: *", text, flags=re.M)[1:500]:
        name, _, rest = part.partition("\n")
        yield name.strip(), parse_attributes(rest)


def _refused(name: str, queue: Mapping[str, str], request: ScriptRequest) -> Iterator[Refusal]:
    if queue.get("enabled", "True") != "True":
        yield Refusal(f"queue {name} takes no jobs now (enabled = False)", "another queue: -q")
    if queue.get("started", "True") != "True":
        yield Refusal(f"queue {name} starts no jobs now (started = False)", "another queue: -q")
    nodes = max(1, request.nodes)
    asked = (
        ("walltime", request.time_s, seconds, clock),
        ("mem", request.whole.mem_bytes, size_bytes, size),
        ("ncpus", request.whole.cpus, count_of, str),
        ("ngpus", request.whole.gpus or None, count_of, str),
        ("nodect", nodes, count_of, str),
    )
    for what, value, read, words in asked:
        most = read(queue.get(f"resources_max.{what}", ""))
        least = read(queue.get(f"resources_min.{what}", ""))
        if value is not None and most is not None and value > most:
            yield Refusal(f"{what} {words(value)}: queue {name} takes at most {words(most)}")
        if value is not None and least is not None and value < least:
            yield Refusal(f"{what} {words(value)}: queue {name} takes at least {words(least)}")
