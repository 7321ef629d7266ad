"""Marks in logs: shapes of faults, never topics. A healthy log may hold the word `nccl` anywhere.

Each pattern is for one line, without a rank's prefix. A mark alone proves nothing: it counts only
if the job failed, and a later rule weighs it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tunnelkit.diagnosis.ended.log.stepd import BY_SIGNAL, STEPD

#: A longer line is cut: patterns stay quick.
_LINE = 2000
_PREFIX = re.compile(r"\[(?:rank|[A-Za-z_]{1,30})(\d{1,6})\]: ?| {0,7}(\d{1,6}): ")
_SLURMSTEPD = rf"^{STEPD}"
_SRUN = r"^srun: error: (?P<node>\S+): tasks? (?P<rank>\d{1,6})\S*: "
_ERROR = r"(?:Error|Exception): "


@dataclass(frozen=True, slots=True)
class Mark:
    """One shape. code: of the verdict it leads to. sentence: what it says; {names} are groups.

    victim: who writes it suffers from the fault of another rank."""

    pattern: re.Pattern[str]
    code: str
    sentence: str
    victim: bool = False


@dataclass(frozen=True, slots=True)
class Hit:
    """A mark that was found. line: its number in the log. rank: from the line's prefix."""

    mark: Mark
    line: int
    text: str
    groups: tuple[tuple[str, str], ...]
    rank: int | None = None

    def group(self, name: str) -> str:
        """Return a named part of the line; "" if it is not there."""
        return dict(self.groups).get(name, "")

    @property
    def sentence(self) -> str:
        """The line in words."""
        return self.mark.sentence.format_map(_Groups(self.groups))


class _Groups(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return ""


def _mark(code: str, pattern: str, sentence: str, *, victim: bool = False) -> Mark:
    return Mark(re.compile(pattern), code, sentence, victim)


MARKS: tuple[Mark, ...] = (
    # -- memory of the node
    _mark("oom-limit", _SLURMSTEPD + r"Detected (?P<count>\d{1,9}) oom[-_]kill event(?:s|\(s\))? "
          r"in (?:StepId=|step )(?P<step>\S+?)\.? ", "Slurm counted an oom-kill in step {step}"),
    # Sites without cgroups: Slurm measures, and kills (JobAcctGatherParams=OverMemoryKill).
    _mark("oom-limit", _SLURMSTEPD + r"(?:StepId=|Step |Job )(?P<step>[\d.+_a-z]+) exceeded "
          r"memory limit \((?P<used>\d{1,18}) > (?P<limit>\d{1,18})\), being killed",
          "Slurm measured more memory in {step} than its limit, and killed it"),
    _mark("oom-limit", _SRUN + r"Out Of Memory", "task {rank} on {node} ran out of memory"),
    _mark("oom-limit", r"^=>> PBS: job killed: v?mem (?P<used>\S+) exceeded limit (?P<limit>\S+)",
          "PBS killed it: memory {used} over the limit {limit}"),
    _mark("oom-limit", r"Memory cgroup out of memory: Kill(?:ed)? process (?P<pid>\d+) "
          r"\((?P<name>[^)]*)\)", "the kernel killed {name} for memory"),
    _mark("oom-limit", r"^Cgroup mem limit exceeded: .*(?:oom-kill:constraint=CONSTRAINT_MEMCG|"
          r"Task in /\S{1,400} killed as a result of limit )",
          "the kernel killed a process for memory"),
    # -- ended by the scheduler
    _mark("timeout", r"^=>> PBS: job killed: walltime (?P<used>\S+) exceeded limit (?P<limit>\S+)",
          "PBS ended it: walltime {used} over the limit {limit}"),
    _mark("ended-by-slurm", _SLURMSTEPD + r"\*\*\* (?P<what>JOB|STEP) (?P<step>\S+) ON \S+ "
          rf"CANCELLED AT (?P<at>\S+){BY_SIGNAL}(?: DUE TO (?P<why>[A-Z ]+?))? \*\*\*",
          "Slurm ended {what} {step}"),
    # -- memory of the GPU
    _mark("gpu-oom", r"\b(?:CUDA|HIP) out of memory\. Tried to allocate "
          r"(?P<asked>[\d.]+ [KMGT]?i?B)",
          "GPU memory: {asked} more was asked for than is free"),
    _mark("gpu-oom", r"(?:Error|Exception): (?:CUDA|HIP|CUDA driver|cuda) (?:runtime )?error"
          r"(?: \(2\))?\s?: out of memory", "the GPU's memory is full"),
    _mark("gpu-oom", r"(?:Error|Exception): RESOURCE_EXHAUSTED: (?:Out of memory (?:while )?"
          r"(?:trying to )?allocat(?:e|ing)|Failed to allocate request for) "
          r"(?P<asked>\d+ bytes|[\d.]+ ?[KMGT]i?B)",
          "GPU memory: {asked} more was asked for than is free"),
    _mark("gpu-oom", r"\bOutOfMemoryError: Out of memory allocating (?P<asked>[\d,]+ bytes)",
          "GPU memory: {asked} more was asked for than is free"),
    _mark("gpu-oom", r"\bResourceExhaustedError: .*OOM when allocating tensor",
          "the GPU's memory is full"),
    _mark("gpu-oom", _ERROR + r".*\b(?:CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED|"
          r"cudaErrorMemoryAllocation)\b", "the GPU's memory is full"),
    # -- the GPU itself
    _mark("gpu-lost", r"\bGPU is lost\.\s+Reboot the system", "the driver has lost the GPU"),
    _mark("gpu-lost", r"NVRM: Xid \(.*?\): 79,", "Xid 79: the GPU has fallen off the bus"),
    _mark("gpu-reset", r"NVRM: Xid \(.*?\): (?P<xid>62|74|119|120|154),",
          "Xid {xid}: the GPU needs a reset"),
    _mark("gpu-memory-error", r"NVRM: Xid \(.*?\): (?P<xid>48|63|64|94|95),",
          "Xid {xid}: an error of the GPU's memory"),
    _mark("gpu-memory-error", r"\buncorrectable ECC error encountered\b",
          "an error of the GPU's memory that can't be corrected"),
    _mark("gpu-driver", r"^NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA "
          r"driver", "the NVIDIA driver does not answer"),
    # -- driver, build and device
    _mark("cuda-too-new", _ERROR + r".*CUDA driver version is insufficient for CUDA runtime",
          "its CUDA is newer than the node's driver"),
    _mark("cuda-too-new", _ERROR + r"The NVIDIA driver on your system is too old "
          r"\(found version (?P<version>\d+)\)", "its CUDA is newer than the node's driver"),
    _mark("cuda-no-kernel", _ERROR + r".*no kernel image is available for execution on the device",
          "its CUDA code is not built for this kind of GPU"),
    _mark("cuda-cpu-build", _ERROR + r"Torch not compiled with CUDA enabled",
          "this torch is built for CPUs alone"),
    _mark("cuda-no-gpu", _ERROR + r"(?:No CUDA GPUs are available|.*no CUDA-capable device is "
          r"detected|.*Found no NVIDIA driver on your system)", "it found no GPU"),
    _mark("driver-mismatch", r"\bDriver/library version mismatch\b",
          "the node's NVIDIA driver and its library differ"),
    # -- other ranks: who writes these is the victim
    _mark("nccl-timeout", r"Watchdog caught collective operation timeout: WorkNCCL\(SeqNum="
          r"(?P<seq>\d+), OpType=(?P<op>\w+).*?Timeout\(ms\)=(?P<ms>\d+)\)",
          "{op} number {seq} did not complete", victim=True),
    _mark("nccl-timeout", r"\bDistBackendError: (?:NCCL error|.*ncclRemoteError|.*NCCL)",
          "NCCL lost another rank", victim=True),
    _mark("nccl-timeout", r"\bncclRemoteError: A call failed possibly due to a network error",
          "NCCL lost another rank", victim=True),
    _mark("nccl-timeout", r"Error: \[[^\]]*/gloo/[^\]]*\] .*(?:Connection (?:reset|closed) by "
          r"peer|[Tt]imed out|Timeout|Broken pipe)", "gloo lost another rank", victim=True),
    # -- loader workers
    _mark("worker-killed", r"DataLoader worker \(pid(?:\(s\))? (?P<pid>[\d, ]+)\) is killed by "
          r"signal: Killed", "a DataLoader worker was killed"),
    _mark("shm-full", r"DataLoader worker \(pid(?:\(s\))? (?P<pid>[\d, ]+)\) is killed by signal: "
          r"Bus error", "a DataLoader worker got a bus error: /dev/shm is full"),
    _mark("shm-full", r"Unexpected bus error encountered in worker\. This might be caused by "
          r"insufficient shared memory", "a DataLoader worker got a bus error: /dev/shm is full"),
    _mark("shm-full", r"unable to (?:write to|allocate shared memory\(shm\) for) file "
          r"</?torch_\S*>: No space left on device", "/dev/shm is full"),
    _mark("shm-full", r"unable to mmap \d+ bytes from file </?torch_\S*>: Cannot allocate memory",
          "/dev/shm is full"),
    _mark("segfault", r"DataLoader worker \(pid(?:\(s\))? (?P<pid>[\d, ]+)\) is killed by signal: "
          r"Segmentation fault", "a DataLoader worker crashed: segmentation fault"),
    # -- file systems and limits
    _mark("files-limit", r"(?:\[Errno 28\] inotify watch limit reached|inotify_add_watch\S* .*No "
          r"space left on device)", "the limit of inotify watches is reached"),
    _mark("quota-full", r"(?:\[Errno 122\] Disk quota exceeded(?:: '(?P<path>[^']*)')?|"
          r"\S: Disk quota exceeded$)", "a disk quota is used up"),
    _mark("disk-full", r"(?:\[Errno 28\] No space left on device(?:: '(?P<path>[^']*)')?|"
          r"\S: No space left on device$)", "a file system is full"),
    _mark("fs-readonly", r"(?:\[Errno 30\] Read-only file system(?:: '(?P<path>[^']*)')?|"
          r"\S: Read-only file system$)", "the file system is mounted read-only"),
    _mark("fs-stale", r"(?:\[Errno 116\] Stale (?:NFS )?file handle(?:: '(?P<path>[^']*)')?|"
          r"\S: Stale (?:NFS )?file handle$)", "a file was replaced or its server forgot it"),
    _mark("fs-lost", r"(?:\[Errno (?:107|5)\] (?:Transport endpoint is not connected|Input/output "
          r"error)(?:: '(?P<path>[^']*)')?|\S: (?:Transport endpoint is not connected|"
          r"Input/output error)$)", "a file system does not answer"),
    _mark("files-limit", r"(?:\[Errno 24\] Too many open files(?:: '(?P<path>[^']*)')?|"
          r"\S: Too many open files$|received 0 items of ancdata)", "too many files are open"),
    _mark("threads-limit", r"(?:RuntimeError: can't start new thread|"
          r"fork: (?:retry: )?Resource temporarily unavailable|"
          r"\[Errno 11\] Resource temporarily unavailable$|"
          r"pthread_create failed|failed to create thread: Resource temporarily unavailable)",
          "no further thread or process may be started"),
    # -- what is not there
    _mark("missing-module", r"\bModuleNotFoundError: No module named '(?P<name>[^']+)'",
          "Python found no module {name}"),
    _mark("missing-module", r"^\S*python[\d.]*: No module named (?P<name>[\w.]+)$",
          "Python found no module {name}"),
    _mark("glibc-too-old", r"version [`'](?P<name>(?:GLIBC|GLIBCXX|CXXABI)_[\d.]+)' not found",
          "the node's library has no {name}"),
    _mark("missing-library", r"(?:(?:Import|OS|Runtime)Error: |error while loading shared "
          r"libraries: )(?P<name>\S+?\.so[\d.]*): cannot open shared object file",
          "the library {name} is not there"),
    # -- what the script sets up, and its launchers
    _mark("environment-module", r"^Lmod has detected the following error:.*The following module"
          r"\(s\) are unknown: \"?(?P<name>[^\s\"]+)", "there is no environment module {name}"),
    _mark("environment-module", r"\bERROR:(?:\d+:)? Unable to locate a modulefile for "
          r"'(?P<name>[^']+)'", "there is no environment module {name}"),
    _mark("conda-not-set-up", r"^CommandNotFoundError: Your shell has not been properly configured "
          r"to use 'conda (?P<name>\w+)'", "conda is not set up in the script's shell"),
    _mark("conda-not-set-up", r"^CondaError: Run 'conda init' before 'conda (?P<name>\w+)'",
          "conda is not set up in the script's shell"),
    _mark("step-refused", r"^srun: error: Unable to create step for job \S+: (?P<why>.+)",
          "srun could not start its step: {why}"),
    _mark("mpi-abort", r"^MPI_ABORT was invoked on rank (?P<rank>\d{1,6}) in communicator .* with "
          r"errorcode (?P<code>-?\d{1,9})", "rank {rank} called MPI_Abort with code {code}"),
    # Open MPI 4 and 5 write the code on a line below.
    _mark("mpi-abort", r"^MPI_ABORT was invoked on rank (?P<rank>\d{1,6}) in communicator ",
          "rank {rank} called MPI_Abort"),
    _mark("mpi-abort", r"^application called MPI_Abort\([^)]{0,80}?(?P<code>-?\d{1,10})\) "
          r"- process (?P<rank>\d{1,6})", "rank {rank} called MPI_Abort with code {code}"),
    _mark("mpi-abort", r"^[Aa]bort\((?P<code>-?\d{1,10})\) on node (?P<rank>\d{1,6}) \(rank \d+ in "
          r"comm \d+\)", "rank {rank} called MPI_Abort with code {code}"),
)  # fmt: skip


def rank_of(line: str) -> tuple[int | None, str]:
    """Return the rank of a line's prefix (`[rank3]: `, srun -l's `3: `), and the rest."""
    match = _PREFIX.match(line)
    if match is None:
        return None, line
    number = next(part for part in match.groups() if part is not None)
    return int(number), line[match.end() :]


def find_marks(lines: Iterable[str]) -> tuple[Hit, ...]:
    """Return the marks in the order of their lines: one a line, the first of the table."""
    found = []
    for number, full in enumerate(lines):
        if not full or full.isspace():
            continue
        rank, line = rank_of(full[:_LINE])
        for mark in MARKS:
            match = mark.pattern.search(line)
            if match is not None:
                groups = tuple((key, text or "") for key, text in match.groupdict().items())
                found.append(Hit(mark, number, line.strip(), groups, rank))
                break
    return tuple(found)
