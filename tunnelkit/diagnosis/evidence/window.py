"""Some seconds of a running job on one node, as the probe's `sample` saw them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tunnelkit.diagnosis.evidence.json_fields import Fields, number

#: A longer answer is not the probe's.
MOST_BYTES = 1 << 20
_MOST_ROWS = 512
_CPUS = 4096


@dataclass(frozen=True, slots=True)
class ThreadView:
    """One of the busiest threads. run, wait: CPUs used, and CPUs that it waited for. states,
    waits: counts of samples, by letter and by what it waits for (probe/waits.py)."""

    pid: int
    tid: int
    name: str = ""
    run: float = 0.0
    wait: float = 0.0
    states: Mapping[str, float] = field(default_factory=dict)
    waits: Mapping[str, float] = field(default_factory=dict)

    def share(self, letters: str) -> float:
        """Return in which share of the samples it was in one of these states."""
        total = sum(self.states.values())
        return sum(self.states.get(one, 0.0) for one in letters) / total if total else 0.0

    @property
    def waits_for(self) -> str:
        """The call that it waits in most; "" if that was not seen."""
        known = {word: count for word, count in self.waits.items() if word != "unknown"}
        return max(known, key=lambda word: known[word]) if known else ""


@dataclass(frozen=True, slots=True)
class IoView:
    """Bytes and calls of a process in each second. read, written: in calls of any kind.
    from_disk, to_disk: what storage really had to do."""

    read_bytes: float = 0.0
    written_bytes: float = 0.0
    read_calls: float = 0.0
    write_calls: float = 0.0
    from_disk_bytes: float = 0.0
    to_disk_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class ProcessView:
    """One process. run, wait: of all its threads, in CPUs; children: of children that ended.
    wanting: threads that want a CPU for half of the time. cpus: those that it may use. mounts:
    where it has files. pids: its number in each namespace. debugger: `debugpy`, if it is loaded
    in a process that does not run. lacks_client: it was to wait for an editor, and none has
    connected. stdin: `terminal`, `pipe`, or "" for anything else. launches: it has started ranks
    and is none of them."""

    pid: int
    parent: int = 0
    rank: int | None = None
    name: str = ""
    argv: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    threads: int = 1
    run: float = 0.0
    wait: float = 0.0
    wanting: int = 0
    children: float = 0.0
    major_faults: float = 0.0
    swap_bytes: int = 0
    swap_bytes_before: int = 0
    rss_bytes: int = 0
    cpus: frozenset[int] = frozenset()
    traced: bool = False
    debugger: str = ""
    lacks_client: bool = False
    stdin: str = ""
    pids: tuple[int, ...] = ()
    io: IoView | None = None
    is_new: bool = False
    mounts: tuple[str, ...] = ()
    launches: bool = False


@dataclass(frozen=True, slots=True)
class QuotaView:
    """A cgroup with a CPU quota. periods, throttled: in the window."""

    path: str
    cpus: float
    periods: int
    throttled: int
    throttled_s: float


@dataclass(frozen=True, slots=True)
class MemoryView:
    """A cgroup with a memory limit. stalled: share of the time in which all of it waited for
    memory; None where the kernel does not count that."""

    path: str
    limit_bytes: int
    used_bytes: int
    hits_a_second: float
    stalled: float | None = None


@dataclass(frozen=True, slots=True)
class NfsView:
    """Operations of an NFS mount in the window. ms: of one. busiest: name, number, ms."""

    ops: int
    ms: float | None
    again: int
    timeouts: int
    busiest: tuple[tuple[str, int, float | None], ...] = ()


@dataclass(frozen=True, slots=True)
class PlaceView:
    """A file system where the job has files. answers: statvfs came back within 3 s. ops:
    operations that it completed; None where nothing counts them. written: files are open there
    for writing. size, free: in bytes; files: inodes, 0 where they are not counted."""

    path: str
    kind: str
    source: str
    answers: bool
    ops: int | None = None
    error: str = ""
    nfs: NfsView | None = None
    written: bool = False
    size_bytes: int = 0
    free_bytes: int = 0
    files: int = 0
    files_free: int = 0

    @property
    def full(self) -> bool:
        """True if an ordinary user can write nothing more."""
        return (self.size_bytes > 0 and not self.free_bytes) or (
            self.files > 0 and not self.files_free
        )


@dataclass(frozen=True, slots=True)
class GpuView:
    """One GPU. busy: percent, by sample. reasons: share of the samples by bit of NVML's reasons.
    processes: bytes by pid, as the driver counts pids; None if it does not tell."""

    index: int
    uuid: str = ""
    name: str = ""
    busy: tuple[float, ...] = ()
    memory_busy: tuple[float, ...] = ()
    power_w: tuple[float, ...] = ()
    clock_mhz: tuple[float, ...] = ()
    reasons: Mapping[int, float] = field(default_factory=dict)
    limit_w: float | None = None
    most_mhz: float | None = None
    total_bytes: int = 0
    used_bytes: int = 0
    processes: Mapping[int, int] | None = None


@dataclass(frozen=True, slots=True)
class NodeWindow:
    """All of one node. cpu_busy: share of the time, by CPU. stolen: CPUs that the hypervisor
    gave to others. host_pids: pids here are the node's, as the GPU driver counts them. gpu_error:
    why GPUs could not be asked. log_grew: None if the job writes no file."""

    node: str
    seconds: float
    rounds: int = 0
    process_count: int = 0
    thread_count: int = 0
    processes: tuple[ProcessView, ...] = ()
    threads: tuple[ThreadView, ...] = ()
    cpu_busy: Mapping[int, float] = field(default_factory=dict)
    stolen: float = 0.0
    quotas: tuple[QuotaView, ...] = ()
    frozen: bool = False
    memory: tuple[MemoryView, ...] = ()
    places: tuple[PlaceView, ...] = ()
    log_grew: bool | None = None
    gpus: tuple[GpuView, ...] = ()
    gpu_source: str = ""
    gpu_error: str = ""
    host_pids: bool = False


def parse_window(data: bytes, node: str) -> NodeWindow | None:
    """Return what the probe printed; None if it is none of its answers. node: as the scheduler
    names it."""
    begin = data.find(b'{"version":1,')
    if begin < 0 or len(data) > MOST_BYTES:
        return None
    try:
        value: object = json.loads(data[begin:].decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return _window(Fields(value), node)


def _window(found: Fields, node: str) -> NodeWindow | None:
    seconds = found.number("seconds")
    if not 0.1 <= seconds <= 1000:
        return None
    places, gpu = found.inner("places"), found.inner("gpu")
    busy = found.counts("cpu_busy")
    return NodeWindow(
        node=node,
        seconds=seconds,
        rounds=found.whole("rounds"),
        process_count=found.whole("process_count"),
        thread_count=found.whole("thread_count"),
        processes=_processes([_process(row) for row in found.rows("processes", _MOST_ROWS)]),
        threads=tuple(_thread(one) for one in found.rows("threads", _MOST_ROWS)),
        cpu_busy={int(cpu): share for cpu, share in busy.items() if _is_index(cpu)},
        stolen=found.number("stolen"),
        quotas=tuple(_quota(one) for one in found.rows("quotas", 64)),
        frozen=found.flag("frozen"),
        memory=tuple(_memory(one) for one in found.rows("memory", 64)),
        places=tuple(_place(one) for one in places.rows("places", 64)),
        log_grew=places.flag_or_none("log_grew"),
        gpus=tuple(_gpu(one) for one in gpu.rows("gpus", 64)),
        gpu_source=gpu.text("source"),
        gpu_error=gpu.text("error"),
        host_pids=found.flag("host_pids"),
    )


def _processes(found: list[ProcessView]) -> tuple[ProcessView, ...]:
    """Return them, without ranks for those that launch the ranks below them: torchrun below srun
    has SLURM_PROCID alone, its workers have RANK."""
    by_pid = {one.pid: one for one in found}
    launchers: set[int] = set()
    for worker in found:
        if worker.rank is None or worker.env.get("RANK") != str(worker.rank):
            continue
        seen, above = {worker.pid}, by_pid.get(worker.parent)
        while above is not None and above.pid not in seen and "RANK" not in above.env:
            # A program that sets RANK for itself, from SLURM_PROCID, hands on its own.
            if above.rank not in (None, worker.rank):
                launchers.add(above.pid)
            seen.add(above.pid)
            above = by_pid.get(above.parent)
    return tuple(
        replace(one, rank=None, launches=True) if one.pid in launchers else one for one in found
    )


def _process(one: Fields) -> ProcessView:
    rank = one.number_or_none("rank")
    return ProcessView(
        pid=one.whole("pid"),
        parent=one.whole("parent"),
        rank=None if rank is None else int(rank),
        name=one.text("name"),
        argv=one.text("argv"),
        env=one.texts("env"),
        threads=one.whole("threads"),
        run=one.number("run"),
        wait=one.number("wait"),
        wanting=one.whole("wanting"),
        children=one.number("children"),
        major_faults=one.number("major_faults"),
        swap_bytes=one.whole("swap_bytes"),
        swap_bytes_before=one.whole("swap_bytes_before"),
        rss_bytes=one.whole("rss_bytes"),
        cpus=cpu_set(one.text("cpus_allowed")),
        traced=one.flag("traced"),
        debugger=one.text("debugger"),
        lacks_client=one.flag("lacks_client"),
        stdin=one.text("stdin"),
        pids=tuple(int(pid) for pid in one.numbers("nspid")[:32]),
        io=_io(one.inner("io")) if one.has("io") else None,
        is_new=one.flag("is_new"),
        mounts=tuple(place[:400] for place in one.items("mounts")[:64] if isinstance(place, str)),
    )


def _io(one: Fields) -> IoView:
    return IoView(
        one.number("rchar"),
        one.number("wchar"),
        one.number("syscr"),
        one.number("syscw"),
        one.number("read_bytes"),
        one.number("write_bytes"),
    )


def _thread(one: Fields) -> ThreadView:
    return ThreadView(
        one.whole("pid"),
        one.whole("tid"),
        one.text("name"),
        one.number("run"),
        one.number("wait"),
        one.counts("states"),
        one.counts("waits"),
    )


def _quota(one: Fields) -> QuotaView:
    return QuotaView(
        one.text("path"),
        one.number("cpus"),
        one.whole("periods"),
        one.whole("throttled"),
        one.number("throttled_s"),
    )


def _memory(one: Fields) -> MemoryView:
    return MemoryView(
        one.text("path"),
        one.whole("limit_bytes"),
        one.whole("used_bytes"),
        one.number("hits_a_second"),
        one.number_or_none("stalled"),
    )


def _place(one: Fields) -> PlaceView:
    ops, nfs = one.number_or_none("ops"), one.inner("nfs")
    rows = nfs.rows("busiest", 16)
    return PlaceView(
        one.text("path"),
        one.text("kind"),
        one.text("source"),
        one.flag("answers"),
        None if ops is None else int(ops),
        one.text("error"),
        NfsView(
            nfs.whole("ops"),
            nfs.number_or_none("ms"),
            sum(row.whole("again") for row in rows),
            sum(row.whole("timeouts") for row in rows),
            tuple((row.text("name"), row.whole("ops"), row.number_or_none("ms")) for row in rows),
        )
        if one.has("nfs")
        else None,
        one.flag("written"),
        one.whole("size_bytes"),
        one.whole("free_bytes"),
        one.whole("files"),
        one.whole("files_free"),
    )


def _gpu(one: Fields) -> GpuView:
    samples = one.number("reason_samples")
    reasons = one.counts("reasons")
    rows = one.items("processes")
    pairs = [row for row in rows[:512] if isinstance(row, list) and len(row) == 2]
    listed = {int(number(pid) or 0): int(number(size) or 0) for pid, size in pairs}
    return GpuView(
        one.whole("index"),
        one.text("uuid"),
        one.text("name"),
        one.numbers("busy"),
        one.numbers("memory_busy"),
        one.numbers("power_w"),
        one.numbers("clock_mhz"),
        {
            int(bit): count / samples
            for bit, count in reasons.items()
            if bit.isascii() and bit.isdigit() and len(bit) <= 20
        }
        if samples
        else {},
        one.number_or_none("limit_w"),
        one.number_or_none("most_mhz"),
        one.whole("total_bytes"),
        one.whole("used_bytes"),
        listed if one.has_list("processes") else None,
    )


def cpu_set(text: str) -> frozenset[int]:
    """Return the CPUs of a list such as `0-3,8`."""
    found: set[int] = set()
    for part in text.split(",")[:512]:
        first, _, last = part.strip().partition("-")
        if _is_index(first) and _is_index(last or first):
            found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def _is_index(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 4 and int(text) < _CPUS
