"""The options of Slurm's batch scripts, `sbatch --test-only`, and the variables of a job."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

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
from tunnelkit.scheduler.slurm.gres import GPU_TYPE
from tunnelkit.scheduler.slurm.submit import is_transient, slurm_words

_LONG = {
    "A": "account", "a": "array", "c": "cpus-per-task", "D": "chdir", "e": "error", "G": "gpus",
    "J": "job-name", "N": "nodes", "n": "ntasks", "o": "output", "p": "partition", "t": "time",
    "m": "distribution", "O": "overcommit", "q": "qos",
}  # fmt: skip
#: Options whose value a job has in a variable, and only a job that has asked for it.
_VARIABLES = {
    "cpus-per-gpu": "SLURM_CPUS_PER_GPU", "distribution": "SLURM_DISTRIBUTION",
    "gpus": "SLURM_GPUS", "gpus-per-node": "SLURM_GPUS_PER_NODE",
    "gpus-per-socket": "SLURM_GPUS_PER_SOCKET", "gpus-per-task": "SLURM_GPUS_PER_TASK",
    "ntasks-per-core": "SLURM_NTASKS_PER_CORE", "ntasks-per-gpu": "SLURM_NTASKS_PER_GPU",
    "ntasks-per-node": "SLURM_NTASKS_PER_NODE", "ntasks-per-socket": "SLURM_NTASKS_PER_SOCKET",
    "qos": "SLURM_JOB_QOS", "reservation": "SLURM_JOB_RESERVATION",
    "threads-per-core": "SLURM_THREADS_PER_CORE",
}  # fmt: skip
_SIZE = re.compile(r"([0-9]{1,15})([KMGTP]?)B?", re.IGNORECASE)
_POWERS = {"K": 10, "": 20, "M": 20, "G": 30, "T": 40, "P": 50}
_COUNT = re.compile(r"[0-9]{1,9}")
_GPU = re.compile(rf"(?:gres/)?gpu(?:[:=]({GPU_TYPE}))?(?:[:=]([0-9]{{1,6}}))?")
#: Slurm's own option for an image, and pyxis's.
_IMAGES = frozenset({"container", "container-image", "container-name"})
_INDEXES = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([1-9][0-9]{0,8}))?)?")
#: Of more the number is not counted one by one.
_MOST_INDEXES = 1_000_000
#: A line that begins the next component of a heterogeneous job; the second word is the older one.
_NEXT_COMPONENT = ("hetjob", "packjob")
#: No node has more.
_MOST_GPUS = 1000
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
        """See `ScriptOptions.words`. Of a heterogeneous job: the component that runs the script."""
        found: list[str] = []
        for line in option_lines(script, b"#SBATCH")[0]:
            words = split_words(line)
            if words and words[0] in _NEXT_COMPONENT:
                break
            found += words
        return found

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
        if code in (124, 127) or is_transient(text):
            return None
        return [Refusal(f"sbatch refuses it: {said or f'exit code {code}'}")]

    def variables(
        self, request: ScriptRequest, host: str, directory: str, here: Mapping[str, str]
    ) -> dict[str, str]:
        """See `ScriptOptions.variables`."""
        by_options = dict(request.by_options)
        found = {
            "SLURM_JOB_ID": "0", "SLURM_JOBID": "0", "SLURM_JOB_NAME": request.name,
            "SLURM_NNODES": "1", "SLURM_JOB_NUM_NODES": "1", "SLURM_NODELIST": host,
            "SLURM_JOB_NODELIST": host, "SLURMD_NODENAME": host, "SLURM_NODEID": "0",
            "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_GTIDS": "0",
            "SLURM_CPUS_ON_NODE": str(request.cpus), "SLURM_JOB_CPUS_PER_NODE": str(request.cpus),
            "SLURM_SUBMIT_DIR": directory, "SLURM_SUBMIT_HOST": host,
            "SLURM_TASKS_PER_NODE": str(request.tasks), "SLURM_CLUSTER_NAME": "simulate",
        }  # fmt: skip
        user = here.get("LOGNAME") or here.get("USER")
        if user:
            found["SLURM_JOB_USER"] = user
        if request.cpus_per_task is not None:
            found["SLURM_CPUS_PER_TASK"] = str(request.cpus_per_task)
        if request.mem_per_cpu_bytes:
            found["SLURM_MEM_PER_CPU"] = str(request.mem_per_cpu_bytes >> 20)
        elif request.mem_bytes and "SLURM_MEM_PER_GPU" not in by_options:
            found["SLURM_MEM_PER_NODE"] = str(request.mem_bytes >> 20)
        if request.partition:
            found["SLURM_JOB_PARTITION"] = request.partition
        if request.account:
            found["SLURM_JOB_ACCOUNT"] = request.account
        if request.gpus:
            found["SLURM_GPUS_ON_NODE"] = str(request.gpus)
            found["SLURM_JOB_GPUS"] = ",".join(map(str, range(min(request.gpus, _MOST_GPUS))))
        if request.array_first is not None:
            found |= {"SLURM_ARRAY_JOB_ID": "0", "SLURM_ARRAY_TASK_ID": str(request.array_first)}
        return found | by_options


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
                yield _LONG.get(letter, letter), ""


class _Request:
    """Reads the values of options."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options
        self._unread: list[str] = []

    def made(self) -> ScriptRequest:
        """Return what they ask for."""
        nodes = self._count("nodes") or 1
        per_node = self._count("ntasks-per-node")
        asked = self._count("ntasks") or (per_node or 0) * nodes or self._tasks_by_gpu(nodes)
        tasks = asked or nodes
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
        array = self._array()
        variables = self._variables(asked, array, per_gpu)
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
            array_first=min(one.start for one in array) if array else None,
            directory=self._options.get("chdir", "") or self._options.get("workdir", ""),
            outputs=tuple(
                path for name in ("output", "error") if (path := self._options.get(name, ""))
            ),
            partition=self._options.get("partition", "").partition(",")[0],
            account=self._options.get("account", ""),
            clean=export.upper() in ("NONE", "NIL"),
            by_options=tuple(variables.items()),
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

    def _array(self) -> list[range]:
        """Return the indexes of a job array; none without one."""
        text = self._options.get("array", "")
        found = []
        for part in text.partition("%")[0].strip("[]").split(",") if text else ():
            match = _INDEXES.fullmatch(part)
            indexes = range(0)
            if match is not None:
                first = int(match[1])
                indexes = range(first, int(match[2] or first) + 1, int(match[3] or 1))
            if not indexes:
                self._unread.append(f"--array={text}")
                return []
            found.append(indexes)
        return found

    def _tasks_by_gpu(self, nodes: int) -> int:
        by_gpu = self._count("ntasks-per-gpu") or 0
        return by_gpu * (
            self._gpu_count(self._options.get("gpus", "")) or self._gpus(1, nodes) * nodes
        )

    def _variables(
        self, tasks: int, array: Sequence[range], per_gpu_bytes: int | None
    ) -> dict[str, str]:
        """Return the variables that come of options alone. tasks: 0 if none are asked for."""
        found = {
            name: value
            for option, name in _VARIABLES.items()
            if (value := self._options.get(option, ""))
        }
        if tasks:
            found["SLURM_NTASKS"] = found["SLURM_NPROCS"] = str(tasks)
        if per_gpu_bytes:
            found["SLURM_MEM_PER_GPU"] = str(per_gpu_bytes >> 20)
        if "overcommit" in self._options:
            found["SLURM_OVERCOMMIT"] = "1"
        if array:
            found |= {
                "SLURM_ARRAY_TASK_COUNT": str(_count_of(array)),
                "SLURM_ARRAY_TASK_MIN": str(min(one.start for one in array)),
                "SLURM_ARRAY_TASK_MAX": str(max(one[-1] for one in array)),
                # Of several ranges it is that of the first which has one.
                "SLURM_ARRAY_TASK_STEP": str(next((a.step for a in array if a.step > 1), 1)),
            }
        return found


def _count_of(array: Sequence[range]) -> int:
    """Return how many indexes there are; one that is named twice counts once."""
    whole = sum(len(one) for one in array)
    if len(array) == 1 or whole > _MOST_INDEXES:
        return whole
    return len(set().union(*array))
