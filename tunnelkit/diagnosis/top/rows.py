"""Rows of `tk top` from the windows of a job's nodes."""

from __future__ import annotations

from collections.abc import Iterable

from tunnelkit.diagnosis.evidence.window import GpuView, NodeWindow, ProcessView, ThreadView
from tunnelkit.diagnosis.running.look import Look, main_thread, mean, users_of
from tunnelkit.diagnosis.top.frame import GpuRow, NodeRow, ProcessRow, ThreadRow
from tunnelkit.diagnosis.top.outlier import mark_worst

_MOST_ROWS, _MOST_THREADS = 256, 64
_WORDS = {
    "R": "runs",
    "S": "sleeps",
    "D": "waits for a disk or driver",
    "T": "is stopped",
    "t": "is held by a debugger",
}
_WAITS = {
    "futex": "waits for a thread",
    "pipe": "waits for a pipe",
    "receive": "waits for a peer",
    "poll": "waits for an event",
    "child": "waits for a child",
    "disk": "waits for a disk",
    "nfs": "waits for NFS",
}


def process_rows(look: Look) -> list[ProcessRow]:
    """Return a row for each rank, in their order; without ranks one for each program."""
    ranks = sorted({one.rank for _, one in look.programs() if one.rank is not None})
    if len(ranks) > 1:
        rows = [row for rank in ranks for row in _rank_rows(look.only_rank(rank), rank)]
    else:
        found = sorted(look.leaves(), key=lambda pair: -(pair[1].run + pair[1].wait))
        rows = [_row(window, [one], None) for window, one in found]
    rows = rows[:_MOST_ROWS]
    mark_worst(rows)
    return rows


def _rank_rows(look: Look, rank: int) -> Iterable[ProcessRow]:
    for window in look.windows:
        mine = Look(look.job, (window,))
        programs = [one for _, one in mine.programs()]
        if programs:
            yield _row(window, programs, rank)


def _row(window: NodeWindow, processes: list[ProcessView], rank: int | None) -> ProcessRow:
    main = max(processes, key=lambda one: (one.run + one.wait, one.rss_bytes))
    pids = {one.pid for one in processes}
    gpus = [gpu for gpu in window.gpus if pids & {one.pid for one in users_of(window, gpu)}]
    read = sum(one.io.from_disk_bytes for one in processes if one.io is not None)
    written = sum(one.io.to_disk_bytes for one in processes if one.io is not None)
    name = f"{window.node}:rank {rank}" if rank is not None else f"{window.node}:{main.pid}"
    return {
        "key": name,
        "node": window.node,
        "pid": main.pid,
        "name": main.name,
        "rank": rank,
        "run": round(sum(one.run + one.children for one in processes), 3),
        "wait": round(sum(one.wait for one in processes), 3),
        "threads": sum(one.threads for one in processes),
        "rss_bytes": sum(one.rss_bytes for one in processes),
        "read_bytes": read,
        "written_bytes": written,
        "gpu": gpus[0].index if gpus else None,
        "gpu_busy": _mean(gpu_busy for gpu in gpus for gpu_busy in gpu.busy),
        "power_w": _mean(watts for gpu in gpus for watts in gpu.power_w),
        "state": state_words(main_thread(window, main)),
        "worst": "",
    }


def state_words(thread: ThreadView | None) -> str:
    """Say what a thread did most of the time; "" if it was not sampled."""
    if thread is None or not thread.states:
        return ""
    letter = max(thread.states, key=lambda one: thread.states[one])
    if letter in "SD" and thread.waits_for in _WAITS:
        return _WAITS[thread.waits_for]
    return _WORDS.get(letter, f"state {letter}")


def gpu_rows(look: Look) -> list[GpuRow]:
    """Return a row for each of the job's GPUs."""
    rows = [_gpu_row(window, gpu) for window, gpu in look.gpus()][:_MOST_ROWS]
    mark_worst(rows)
    return rows


def _gpu_row(window: NodeWindow, gpu: GpuView) -> GpuRow:
    return {
        "key": f"{window.node}:gpu {gpu.index}",
        "node": window.node,
        "index": gpu.index,
        "name": gpu.name,
        "busy": _mean(gpu.busy),
        "busy_least": min(gpu.busy, default=None),
        "busy_most": max(gpu.busy, default=None),
        "power_w": _mean(gpu.power_w),
        "limit_w": gpu.limit_w,
        "clock_mhz": _mean(gpu.clock_mhz),
        "most_mhz": gpu.most_mhz,
        "used_bytes": gpu.used_bytes,
        "total_bytes": gpu.total_bytes,
        "processes": None if gpu.processes is None else len(users_of(window, gpu)),
        "worst": "",
    }


def thread_rows(look: Look) -> list[ThreadRow]:
    """Return the busiest threads, the busiest first."""
    ranks = {(window.node, one.pid): one.rank for window, one in look.processes()}
    # One that has ended meanwhile has no name any more.
    found = [(window, one) for window in look.windows for one in window.threads if one.name]
    found.sort(key=lambda pair: -(pair[1].run + pair[1].wait))
    return [
        {
            "node": window.node,
            "pid": one.pid,
            "tid": one.tid,
            "rank": ranks.get((window.node, one.pid)),
            "name": one.name,
            "run": one.run,
            "wait": one.wait,
            "state": state_words(one),
        }
        for window, one in found[:_MOST_THREADS]
    ]


def node_row(look: Look, window: NodeWindow) -> NodeRow:
    """Return the row of one node."""
    used_bytes, limit_bytes = _memory(window)
    return {
        "node": window.node,
        "run": round(sum(one.run + one.children for one in window.processes), 3),
        "busiest": max((one.run for one in window.processes), default=0.0),
        "wait": round(sum(one.wait for one in window.processes), 3),
        "cpus": look.cpus_of(window),
        "rss_bytes": used_bytes,
        "limit_bytes": limit_bytes,
        "processes": window.process_count,
        "problem": f"GPUs: {window.gpu_error}" if window.gpu_error else "",
    }


def _memory(window: NodeWindow) -> tuple[int, int | None]:
    """Return what is used of the smallest limit, and that limit."""
    total = sum(one.rss_bytes for one in window.processes)
    levels = [one for one in window.memory if one.limit_bytes]
    if not levels:
        return total, None
    # Of the job and its steps, which have the same limit, the job has all.
    least = min(levels, key=lambda one: (one.limit_bytes, -one.used_bytes))
    # The kernel's figure counts what was read from files, too, and the sum counts pages that
    # processes share for each of them: both are at least what is used.
    return min(total, least.used_bytes or total), least.limit_bytes


def silent_node(node: str, why: str) -> NodeRow:
    """Return the row of a node of which nothing is known."""
    return {"node": node, "run": 0.0, "busiest": 0.0, "wait": 0.0, "cpus": 0, "rss_bytes": 0,
            "limit_bytes": None, "processes": 0, "problem": why}  # fmt: skip


def _mean(values: Iterable[float]) -> float | None:
    found = list(values)
    return round(mean(found), 1) if found else None
