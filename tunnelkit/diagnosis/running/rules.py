"""The verdicts on a job that runs: the questions in their order, at most two findings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tunnelkit.diagnosis.evidence.job import JobView
from tunnelkit.diagnosis.evidence.stacks import StackView, by_debugger
from tunnelkit.diagnosis.evidence.storage import NO_STORAGE, StorageView
from tunnelkit.diagnosis.evidence.window import NodeWindow
from tunnelkit.diagnosis.running import cpus, debugged, full, gpus, ranks, still
from tunnelkit.diagnosis.running import storage as slow_storage
from tunnelkit.diagnosis.running.look import Look, percent
from tunnelkit.diagnosis.verdict import Certainty, Evidence, NextStep, Verdict


@dataclass(frozen=True, slots=True)
class Question:
    """One question. label: for the line of what was excluded, or "". of_gpus: it needs a GPU.
    explains: codes of findings that follow from this one."""

    code: str
    label: str
    find: Callable[[Look], Verdict | None]
    explains: frozenset[str] = frozenset()
    of_gpus: bool = False


_STANDS = frozenset(
    {
        *("stopped", "storage-gone", "hang", "throttled", "too-many-threads", "neighbours"),
        *("swap", "storage-slow", "gpu-unused", "gpu-waits-for-data", "one-thread"),
    }
)
_HELD = frozenset({"stopped", "storage-gone", "hang", "gpu-waits-for-data", "gpu-unused"})
_LACKS_CPU = frozenset({"too-many-threads", "neighbours", "one-thread", "gpu-waits-for-data"})

QUESTIONS = (
    Question("at-breakpoint", "", debugged.at_breakpoint, _HELD),
    Question("waits-for-editor", "", debugged.waits_for_editor, _STANDS),
    Question("stopped", "stopped", still.stopped, _STANDS),
    Question("storage-gone", "storage gone", still.storage_gone, _STANDS),
    Question("storage-full", "full disks", full.storage_full),
    Question("hang", "hang", still.hang, _STANDS),
    Question("throttled", "CPU quota", cpus.throttled, _LACKS_CPU),
    Question("too-many-threads", "threads", cpus.too_many_threads, _LACKS_CPU),
    Question("neighbours", "neighbours", cpus.neighbours, _LACKS_CPU),
    Question("swap", "swap", slow_storage.swap, frozenset({"storage-slow", "gpu-waits-for-data"})),
    Question(
        "storage-slow",
        "storage",
        slow_storage.storage_slow,
        frozenset({"gpu-waits-for-data", "one-thread"}),
    ),
    Question(
        "gpu-unused", "GPU use", gpus.unused, frozenset({"one-thread", "gpu-waits-for-data"}), True
    ),
    Question(
        "gpu-waits-for-data", "data for GPUs", gpus.waits_for_data, frozenset({"one-thread"}), True
    ),
    Question("one-thread", "one thread", cpus.one_thread),
    Question("storage-gone", "", still.storage_silent),
    Question("gpu-clocks", "GPU clocks", gpus.clocks, of_gpus=True),
    Question("gpu-memory", "GPU memory", gpus.memory, of_gpus=True),
)
_MOST = 2
_MOST_STACKS = 64


def judge_running(
    job: JobView,
    windows: Sequence[NodeWindow],
    now_s: float,
    stacks: Sequence[StackView] = (),
    storage: StorageView = NO_STORAGE,
) -> tuple[Verdict, ...]:
    """Return what holds a running job back, at most two verdicts. now_s: as in other rooms.

    storage: of its log, as the login host sees it."""
    look = Look(job, tuple(windows), tuple(by_debugger(one) for one in stacks), storage)
    if not look.windows and not job.suspended:
        return (Verdict("running", "runs", Certainty.UNKNOWN),)
    held = debugged.at_breakpoint(look) or debugged.waits_for_editor(look)
    found = None if held else ranks.straggler(look)
    if found is not None:
        rank, verdict = found
        causes, asked = _findings(look.only_rank(rank))
        first = causes[:1]
        if first:
            verdict = replace(verdict, because=(*verdict.because, *first[0].because), next_steps=())
        return tuple(
            replace(one, excluded=_excluded(look, asked) if at == 0 else ())
            for at, one in enumerate((verdict, *first))
        )
    verdicts, asked = _findings(look)
    excluded = _excluded(look, asked)
    if not verdicts:
        return (replace(_nothing(look), excluded=excluded),)
    return (replace(verdicts[0], excluded=excluded), *verdicts[1:])


def to_ask(job: JobView, windows: Sequence[NodeWindow]) -> tuple[tuple[str, int], ...]:
    """Return the processes whose Python stacks would say more: node and pid, at most 64.

    They do not run, and a debugger may hold them, or all of the job stands still."""
    look = Look(job, tuple(windows))
    all_stand = still.stands(look)
    return tuple(
        (window.node, one.pid)
        for window, one in look.leaves()
        if one.run + one.children <= debugged.STANDS and (all_stand or one.debugger)
    )[:_MOST_STACKS]


def _findings(look: Look) -> tuple[list[Verdict], list[Question]]:
    """Return at most two independent findings, and the questions without one."""
    found: list[Verdict] = []
    without = []
    explained: frozenset[str] = frozenset()
    codes = set()
    for question in QUESTIONS:
        verdict = question.find(look)
        if verdict is None:
            without.append(question)
            continue
        codes.add(question.code)
        if len(found) < _MOST and question.code not in explained:
            found.append(verdict)
            explained |= question.explains
    without = [one for one in without if one.code not in codes]
    risks = [one for one in found if one.code == "gpu-memory"]
    # A risk is of interest only if there is no cause.
    return (found if len(found) == len(risks) else [one for one in found if one not in risks]), (
        without
    )


def _excluded(look: Look, asked: Sequence[Question]) -> tuple[str, ...]:
    has_gpus = bool(look.gpus())
    labels = [one.label for one in asked if one.label and (has_gpus or not one.of_gpus)]
    return (*labels, "ranks") if look.has_ranks else tuple(labels)


def _nothing(look: Look) -> Verdict:
    """Nothing was found: say what was seen."""
    programs = look.programs()
    nodes = ", ".join(window.node for window in look.windows[:4])
    if not programs:
        return Verdict(
            "nothing",
            f"runs, and no program of it was found on {nodes}",
            Certainty.UNKNOWN,
            (Evidence("only its script, launchers and processes of tk were seen", "/proc"),),
            next_steps=(NextStep("a program of `tk loop` is known to its session", "tk ranks"),),
        )
    busiest = sorted(programs, key=lambda row: -row[1].run)[:3]
    rows = [
        Evidence(f"{look.who(window, one)}: {percent(one.run)} of a CPU", "schedstat", "busiest")
        for window, one in busiest
        if one.run >= 0.01
    ]
    seconds = max(window.seconds for window in look.windows)
    sentence = (
        "runs; nothing holds it back that can be seen from outside"
        if rows
        else f"runs, and used no CPU in {seconds:.0f} s: it waits for a timer, input or the network"
    )
    return Verdict(
        "nothing",
        sentence,
        Certainty.UNKNOWN,
        (
            Evidence(f"{look.run:.1f} of {look.cpus} used", "schedstat", "CPUs"),
            *rows,
            *gpus.gpu_lines(look),
        ),
        next_steps=(NextStep("where its time goes", f"py-spy top --pid {busiest[0][1].pid}"),)
        if rows
        else (),
    )
