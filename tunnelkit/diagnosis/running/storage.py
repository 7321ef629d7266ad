"""Jobs that wait for memory or storage: swapping, slow file systems, small reads."""

from __future__ import annotations

from tunnelkit.diagnosis.evidence.window import (
    MemoryView,
    NodeWindow,
    PlaceView,
    ProcessView,
    ThreadView,
)
from tunnelkit.diagnosis.running.look import Look, percent
from tunnelkit.diagnosis.verdict import Certainty, Evidence, NextStep, Verdict

_FAULTS = 100.0
_GROWTH_BYTES = 4 << 20
_NEAR_LIMIT = 0.95
_STALLED = 0.10
_HITS = 10.0
#: Share of the samples.
_WAITS = 0.30
_SMALL_BYTES = 64 * 1024
_MANY_CALLS = 500.0
_MB = 1e6
_NOT_STORAGE = frozenset({"gpu-driver", "swap", "stopped", "child"})


def swap(look: Look) -> Verdict | None:
    """Memory goes to swap and comes back, or the job is at its memory limit and reads again."""
    for window in look.windows:
        known = [one for one in window.processes if not one.is_new]
        growth = sum(one.swap_bytes - one.swap_bytes_before for one in known)
        in_use = sum(one.swap_bytes for one in window.processes)
        faults = sum(one.major_faults for one in window.processes)
        grows, faulting = growth >= _GROWTH_BYTES, faults > _FAULTS and in_use > 0
        if grows or faulting:
            return _swapping(look, window, growth, in_use, faults, sure=grows and faulting)
        for limit in window.memory:
            if _at_limit(limit, faults):
                return _reclaiming(look, window, limit, faults)
    return None


def _swapping(
    look: Look, window: NodeWindow, growth: int, in_use: int, faults: float, *, sure: bool
) -> Verdict:
    return Verdict(
        "swap",
        f"is slow: it swaps{look.where(window)}, {_size(in_use)} of its memory are in swap",
        Certainty.PROVEN if sure else Certainty.LIKELY,
        (
            Evidence(f"{faults:.0f} major page faults in each second", "/proc/PID/stat"),
            Evidence(
                f"swap grew by {_size(max(0, growth))} in {window.seconds:.0f} s",
                "VmSwap in /proc/PID/status",
            ),
        ),
        next_steps=_more_memory(look),
    )


def _at_limit(limit: MemoryView, faults: float) -> bool:
    full = limit.used_bytes >= _NEAR_LIMIT * limit.limit_bytes > 0
    stalled = limit.stalled is not None and limit.stalled >= _STALLED
    # The page cache alone reaches a limit often, without harm: so faults must be many, too.
    return full and (stalled or (limit.hits_a_second >= _HITS and faults > _FAULTS))


def _reclaiming(look: Look, window: NodeWindow, limit: MemoryView, faults: float) -> Verdict:
    stalled = "" if limit.stalled is None else f"; all wait {percent(limit.stalled)} of the time"
    return Verdict(
        "swap",
        f"is slow: it is at its memory limit of {_size(limit.limit_bytes)}{look.where(window)}, "
        "and the kernel takes pages back that it needs",
        Certainty.LIKELY,
        (
            Evidence(
                f"{_size(limit.used_bytes)} in use; limit reached "
                f"{limit.hits_a_second:.0f} times in each second{stalled}",
                limit.path,
            ),
            Evidence(f"{faults:.0f} major page faults in each second", "/proc/PID/stat"),
        ),
        next_steps=_more_memory(look),
    )


def _more_memory(look: Look) -> tuple[NextStep, ...]:
    need = look.job.need.mem_bytes
    if not need:
        return (NextStep("ask for more memory (--mem), or use less"),)
    wanted = max(1, -(-need * 3 // (2 << 30)))
    return (
        NextStep("ask for more memory", f"tk up --mem {wanted}G"),
        NextStep("or use less: smaller batches, fewer workers"),
    )


def storage_slow(look: Look) -> Verdict | None:
    """Main or loader threads wait for storage in 30 % of the samples or more."""
    found = []
    for window, one in look.processes():
        for thread in window.threads:
            loader = thread.tid == one.pid or thread.name.startswith("pt_data")
            if thread.pid == one.pid and loader:
                share = _storage_share(thread)
                if share >= _WAITS:
                    found.append((share, window, one))
    if not found:
        return None
    share, window, one = max(found, key=lambda row: row[0])
    place = _slowest(window, one)
    where = f" {place.path} ({place.kind})" if place is not None else ""
    return Verdict(
        "storage-slow",
        f"is slow: it waits for storage{where} {percent(share)} of the time",
        Certainty.LIKELY,
        (
            Evidence(
                f"{look.who(window, one)} waits in the kernel for storage in {percent(share)} of "
                f"the samples; {len(found)} such threads",
                "/proc/PID/task/TID/stat",
            ),
            *_nfs_lines(place),
            *_io_lines(one),
        ),
        next_steps=_faster(one),
    )


def _storage_share(thread: ThreadView) -> float:
    return 0.0 if thread.waits_for in _NOT_STORAGE else thread.share("D")


def _slowest(window: NodeWindow, one: ProcessView) -> PlaceView | None:
    places = [place for place in window.places if place.path in one.mounts]
    # A file system over the network first, then one that did something.
    places.sort(key=lambda place: (place.nfs is None, place.path == "/", -(place.ops or 0)))
    return places[0] if places else None


def _nfs_lines(place: PlaceView | None) -> tuple[Evidence, ...]:
    if place is None or place.nfs is None or not place.nfs.ops:
        return ()
    nfs = place.nfs
    rows = ", ".join(
        f"{name} {count}" + (f" ({ms:.1f} ms)" if ms is not None else "")
        for name, count, ms in nfs.busiest[:3]
    )
    lost = f"; {nfs.again} sent again" if nfs.again else ""
    return (
        Evidence(
            f"{nfs.ops} operations, {nfs.ms or 0:.1f} ms each: {rows}{lost}",
            "/proc/self/mountstats",
        ),
    )


def _io_lines(one: ProcessView) -> tuple[Evidence, ...]:
    if one.io is None:
        return ()
    disk = one.io.from_disk_bytes + one.io.to_disk_bytes
    text = (
        f"reads {one.io.read_bytes / _MB:.1f} MB/s in {one.io.read_calls:.0f} calls/s, writes "
        f"{one.io.written_bytes / _MB:.1f} MB/s; {disk / _MB:.1f} MB/s reach the disk"
    )
    return (Evidence(text, "/proc/PID/io"),)


def small_reads(one: ProcessView) -> bool:
    """True if a process reads in many small pieces."""
    io = one.io
    return io is not None and (
        io.read_calls > _MANY_CALLS and io.read_bytes / io.read_calls < _SMALL_BYTES
    )


def _faster(one: ProcessView) -> tuple[NextStep, ...]:
    small = (
        (NextStep("read in larger pieces: pack small files, or use a larger buffer"),)
        if small_reads(one)
        else ()
    )
    copy = NextStep("copy the data to the node's own disk first", "cp -r DATA ${TMPDIR:-/tmp}/")
    return (*small, copy, NextStep("or load ahead with more workers"))


def _size(size_bytes: float) -> str:
    return (
        f"{size_bytes / (1 << 30):.1f} GB"
        if size_bytes >= 1 << 30
        else f"{size_bytes / (1 << 20):.0f} MB"
    )
