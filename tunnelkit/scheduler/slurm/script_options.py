"""The options of Slurm's batch scripts, `sbatch --test-only`, and the variables of a job."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tunnelkit.model import Completed
from tunnelkit.scheduler.base import LoginPrograms
from tunnelkit.scheduler.script_options import (
    DryRun,
    Refusal,
    ScriptRequest,
    Wanted,
    option_lines,
    split_words,
)
from tunnelkit.scheduler.slurm.batch_scripts import (
    SHORT_WITH_VALUE,
    long_option,
    takes_next,
)
from tunnelkit.scheduler.slurm.duration import format_duration, parse_duration
from tunnelkit.scheduler.slurm.submit import is_transient, slurm_words

_LONG = {
    "A": "account", "a": "array", "c": "cpus-per-task", "D": "chdir", "e": "error", "G": "gpus",
    "J": "job-name", "N": "nodes", "n": "ntasks", "o": "output", "p": "partition", "t": "time",
}  # fmt: skip
_SIZE = re.compile(r"([0-9]{1,15})([KMGTP]?)B?", re.IGNORECASE)
_POWERS = {"K": 10, "": 20, "M": 20, "G": 30, "T": 40, "P": 50}
_COUNT = re.compile(r"[0-9]{1,9}")
_GPU = re.compile(r"(?:gres/)?gpu(?:[:=]([A-Za-z][\w.-]*))?(?:[:=]([0-9]{1,6}))?")
#: Slurm's own option for an image, and pyxis's.
_IMAGES = frozenset({"container", "container-image", "container-name"})
#: An ssh command line has room for it, and no header is longer.
_MOST_HEADER = 64 * 1024


class SlurmScriptOptions(LoginPrograms):
    """See `ScriptOptions`."""

    name = "slurm"
    mark = "#SBATCH"

    def takes_next(self, option: str) -> bool:
        """See `ScriptOptions.takes_next`."""
        return takes_next(option)

    def words(self, script: bytes) -> list[str]:
        """See `ScriptOptions.words`."""
        lines, _ = option_lines(script, b"#SBATCH")
        return [word for line in lines for word in split_words(line)]

    def late(self, script: bytes) -> list[int]:
        """See `ScriptOptions.late`."""
        return option_lines(script, b"#SBATCH")[1]

    def request(self, words: Sequence[str]) -> ScriptRequest:
        """See `ScriptOptions.request`."""
        return _Request(dict(_pairs(words))).made()

    def asking(self, wanted: Wanted) -> list[str]:
        """See `ScriptOptions.asking`."""
        values = (
            ("mem", wanted.mem), ("cpus-per-task", wanted.cpus), ("gpus", wanted.gpus),
            ("time", None if wanted.time_s is None else format_duration(wanted.time_s)),
            ("partition", wanted.partition), ("account", wanted.account), ("qos", wanted.qos),
        )  # fmt: skip
        return [f"--{name}={value}" for name, value in values if value is not None]

    def dry_run(self, script: bytes, options: Sequence[str]) -> DryRun:
        """See `ScriptOptions.dry_run`. Only the head of the script is needed."""
        first, _, rest = script.partition(b"\n")
        head = [first]
        for line in rest.split(b"\n"):
            if line.strip() and not line.lstrip().startswith(b"#"):
                break
            head.append(line)
        text = b"\n".join(head)[:_MOST_HEADER] + b"\n:\n"
        argv = ("env", "-u", "SBATCH_WAIT", self._program("sbatch"), "--test-only", *options)
        return DryRun(argv, text)

    def refusals(self, request: ScriptRequest, code: int, text: str) -> list[Refusal] | None:
        """See `ScriptOptions.refusals`."""
        if code == 0:
            return []
        said = slurm_words(Completed(code, b"", text.encode()))
        said = re.sub(r"(?:^|(?<=; ))allocation failure: ", "", said)
        if code in (124, 127) or is_transient(said):
            return None
        return [Refusal(f"sbatch refuses it: {said or f'exit code {code}'}")]

    def variables(self, request: ScriptRequest, host: str, directory: str) -> dict[str, str]:
        """See `ScriptOptions.variables`."""
        found = {
            "SLURM_JOB_ID": "0", "SLURM_JOBID": "0", "SLURM_JOB_NAME": request.name,
            "SLURM_NNODES": "1", "SLURM_JOB_NUM_NODES": "1", "SLURM_NODELIST": host,
            "SLURM_JOB_NODELIST": host, "SLURMD_NODENAME": host, "SLURM_NODEID": "0",
            "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_GTIDS": "0",
            "SLURM_CPUS_ON_NODE": str(request.cpus), "SLURM_JOB_CPUS_PER_NODE": str(request.cpus),
            "SLURM_SUBMIT_DIR": directory, "SLURM_SUBMIT_HOST": host,
            "SLURM_TASKS_PER_NODE": str(request.tasks), "SLURM_CLUSTER_NAME": "simulate",
        }  # fmt: skip
        if request.tasks > 1:
            found["SLURM_NTASKS"] = found["SLURM_NPROCS"] = str(request.tasks)
        if request.cpus_per_task is not None:
            found["SLURM_CPUS_PER_TASK"] = str(request.cpus_per_task)
        if request.mem_per_cpu_bytes:
            found["SLURM_MEM_PER_CPU"] = str(request.mem_per_cpu_bytes >> 20)
        elif request.mem_bytes:
            found["SLURM_MEM_PER_NODE"] = str(request.mem_bytes >> 20)
        if request.partition:
            found["SLURM_JOB_PARTITION"] = request.partition
        if request.account:
            found["SLURM_JOB_ACCOUNT"] = request.account
        if request.gpus:
            found["SLURM_GPUS_ON_NODE"] = str(request.gpus)
        if request.array_first is not None:
            first = str(request.array_first)
            found |= {
                "SLURM_ARRAY_JOB_ID": "0", "SLURM_ARRAY_TASK_ID": first,
                "SLURM_ARRAY_TASK_MIN": first,
            }  # fmt: skip
        return found


def _pairs(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Return the options with their long names, as getopt reads them."""
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            if not equals and takes_next(word):
                value = rest.pop(0) if rest else ""
            yield long_option(name), value
        elif word.startswith("-"):
            for at, letter in enumerate(word[1:], 2):
                if letter in SHORT_WITH_VALUE:
                    value = word[at:] or (rest.pop(0) if rest else "")
                    yield _LONG.get(letter, letter), value
                    break
                yield letter, ""


class _Request:
    """Reads the values of options."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options
        self._unread: list[str] = []

    def made(self) -> ScriptRequest:
        """Return what they ask for."""
        nodes = self._count("nodes") or 1
        per_node = self._count("ntasks-per-node")
        tasks = self._count("ntasks") or (per_node or 1) * nodes
        here = min(tasks, per_node or -(-tasks // nodes))
        per_task = self._count("cpus-per-task")
        cpus = max(here * (per_task or 1), self._count("mincpus") or 1)
        per_cpu = self._size("mem-per-cpu")
        gpus = self._gpus(here, nodes)
        per_gpu = self._size("mem-per-gpu")
        memory = self._size("mem")
        if memory is None and per_cpu:
            memory = per_cpu * cpus
        elif memory is None and per_gpu and gpus:
            memory = per_gpu * gpus
        export = self._options.get("export", "")
        return ScriptRequest(
            name=self._options.get("job-name", ""),
            nodes=nodes,
            tasks=tasks,
            cpus=cpus,
            cpus_per_task=per_task,
            mem_bytes=memory or None,
            mem_per_cpu_bytes=per_cpu,
            gpus=gpus,
            time_s=self._time(),
            array_first=self._array(),
            directory=self._options.get("chdir", "") or self._options.get("workdir", ""),
            outputs=tuple(
                path for name in ("output", "error") if (path := self._options.get(name, ""))
            ),
            partition=self._options.get("partition", "").partition(",")[0],
            account=self._options.get("account", ""),
            clean=export.upper() in ("NONE", "NIL"),
            in_image=not _IMAGES.isdisjoint(self._options),
            unread=tuple(self._unread),
        )

    def _count(self, name: str) -> int | None:
        text = self._options.get(name, "")
        if not text:
            return None
        # `-N 2-4`: at least so many.
        first = text.partition("-")[0]
        if not _COUNT.fullmatch(first) or not int(first):
            self._unread.append(f"--{name}={text}")
            return None
        return int(first)

    def _size(self, name: str) -> int | None:
        text = self._options.get(name, "")
        if not text:
            return None
        match = _SIZE.fullmatch(text)
        if match is None:
            self._unread.append(f"--{name}={text}")
            return None
        return int(match[1]) << _POWERS[match[2].upper()]

    def _gpus(self, here: int, nodes: int) -> int:
        """Return the GPUs on the first node."""
        on_node = self._gpu_count(self._options.get("gpus-per-node", ""))
        for part in self._options.get("gres", "").split(","):
            match = _GPU.fullmatch(part.strip())
            if match is not None:
                on_node += int(match[2] or 1)
        by_task = self._gpu_count(self._options.get("gpus-per-task", "")) * here
        whole = self._gpu_count(self._options.get("gpus", ""))
        return on_node or by_task or -(-whole // nodes)

    def _gpu_count(self, text: str) -> int:
        parts = [part.rpartition(":")[2] for part in text.split(",") if part]
        return sum(int(one) if _COUNT.fullmatch(one) else 1 for one in parts)

    def _time(self) -> int | None:
        text = self._options.get("time", "")
        found = parse_duration(text) if text else None
        if text and found is None and text.upper() not in ("INFINITE", "UNLIMITED", "-1"):
            self._unread.append(f"--time={text}")
        return found or None

    def _array(self) -> int | None:
        match = re.match(r"[0-9]{1,9}", self._options.get("array", ""))
        return int(match[0]) if match else None
