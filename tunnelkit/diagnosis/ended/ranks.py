"""Ranks and workers: who reports a lost rank is its victim."""

from __future__ import annotations

import re

from tunnelkit.diagnosis.ended.case import Case, black_box
from tunnelkit.diagnosis.ended.exceptions import MOST_AFTER, certainty_of, is_last
from tunnelkit.diagnosis.ended.log.marks import Hit
from tunnelkit.diagnosis.ended.log.traceback import RootCause, Traceback, root_cause
from tunnelkit.diagnosis.ended.words import ABRT, signal_name
from tunnelkit.diagnosis.verdict import Certainty, Evidence, NextStep, Verdict, failed_by

_VICTIMS = (
    "DistBackendError",
    "DistNetworkError",
    "DistStoreError",
    "ConnectionResetError",
    "BrokenPipeError",
)
#: Of torch's watchdog: the C++ stack and torchrun's table follow, one of each node. What is above
#: was another try.
_MOST_BEHIND = 100
_TABLE = "Root Cause (first observed failure):"
#: The program, or torchrun, tells that a process of it has gone.
_LOST = re.compile(r"\bDataLoader worker |\bChildFailedError:")
_RECORD = NextStep(
    "have torch write which rank was missing: TORCH_NCCL_TRACE_BUFFER_SIZE=2000 "
    "TORCH_NCCL_DUMP_ON_TIMEOUT=1"
)
_STACKS = NextStep("see where each rank stands", "tk ranks")
_SIGNAL_CODES = {4: "illegal-instruction", 6: "abort", 7: "bus", 9: "killed-unknown",
                 11: "segfault", 15: "terminated"}  # fmt: skip


def is_victim(found: Traceback) -> bool:
    """True if this exception only says that another rank has gone."""
    name = found.type.rpartition(".")[2]
    text = found.message
    return name in _VICTIMS or ("gloo" in text and ("peer" in text or "imed out" in text))


def _aborted_as_victim(case: Case, root: RootCause) -> bool:
    """Return True if torch's watchdog aborted the rank in torchrun's table: it waited for another.

    What other ranks alone reported may be a consequence of that rank's end."""
    if root.exit_code != -ABRT:
        return False
    return any(one.mark.victim and one.rank in (None, root.rank) for one in case.hits)


def first_rank_signalled(case: Case) -> Verdict | None:
    """Part of rule 13: torchrun's table names a rank that a signal ended."""
    root = root_cause(case.text)
    if root is None or root.exit_code is None or root.exit_code >= 0 or not case.failed:
        return None
    signal = -root.exit_code
    if _aborted_as_victim(case, root):
        return None
    if case.hit("gpu-oom") is not None or _lost_worker(case) is not None:
        return None
    code = _SIGNAL_CODES.get(signal, "exit-unknown")
    host = f" on {root.host}" if root.host else ""
    return failed_by(
        code,
        f"rank {root.rank}{host} was ended by {signal_name(signal)}, the first to fail",
        Certainty.LIKELY if signal != 9 else Certainty.UNKNOWN,
        (
            Evidence(f"torchrun: rank {root.rank}, exit code {root.exit_code}, {root.time}", "log"),
            case.record(),
        ),
        ("the other ranks ended after it",),
        next_steps=_signal_steps(case, signal),
    )


def collective(case: Case) -> Verdict | None:
    """Rule 13: a collective did not complete, and no other rank is known to have failed."""
    hits = _last_victims(case)
    if not hits or not case.failed:
        return None
    hit = hits[0]
    found = case.failure
    lost = found is not None and (
        is_victim(found) or (found.root is not None and _aborted_as_victim(case, found.root))
    )
    if found is not None and not lost and certainty_of(case, found) is not None:
        # The rank that failed first has a rule of its own.
        return None
    number = f" number {hit.group('seq')}" if hit.group("seq") else ""
    reporters = sorted({one.rank for one in hits if one.rank is not None})
    who = f"rank {', '.join(map(str, reporters[:8]))} reported it" if reporters else ""
    what = f"{hit.group('op')}{number}" if hit.group("op") else "a collective"
    return failed_by(
        "nccl-timeout",
        f"not every rank arrived at {what}",
        Certainty.LIKELY,
        (Evidence(hit.text[:200], "log"), case.record()),
        (f"{who}: it waited for another, so it is not the cause",) if who else (),
        next_steps=(_RECORD, _STACKS),
    )


def _last_victims(case: Case) -> list[Hit]:
    """Return the marks by which ranks tell at the end that another one has gone."""
    found: list[Hit] = []
    next_line = len(case.lines)
    most = _MOST_BEHIND * max(1, sum(_TABLE in line for line in case.lines))
    for one in reversed([one for one in case.hits if one.mark.victim]):
        behind = next_line - one.line if found else case.lines_after(one.line)
        if behind > most:
            break
        found.insert(0, one)
        next_line = one.line
    return found


def worker(case: Case) -> Verdict | None:
    """Rule 14: a DataLoader's worker was killed."""
    hit = _lost_worker(case)
    if hit is None or not case.failed:
        return None
    because = [Evidence(hit.text[:200], "log"), case.record()]
    room = next((one for one in case.end.rooms if one.mounted_on == "/dev/shm"), None)
    if room is not None:
        because.append(Evidence(f"/dev/shm is {room.used:.0%} full", "df on the login host"))
    if hit.mark.code == "shm-full":
        steps = (
            NextStep("fewer workers, or torch.multiprocessing.set_sharing_strategy('file_system')"),
            NextStep("in a container: --shm-size 8g"),
        )
        return failed_by(
            "shm-full",
            hit.sentence,
            Certainty.LIKELY,
            tuple(because),
            next_steps=steps,
        )
    return failed_by(
        "worker-killed",
        f"{hit.sentence} (pid {hit.group('pid')}), usually for memory; "
        "nobody counted whether it was",
        Certainty.LIKELY,
        tuple(because),
        next_steps=(
            NextStep("fewer workers, or more memory: --mem"),
            black_box(case),
        ),
    )


def _lost_worker(case: Case) -> Hit | None:
    """Return the last mark of a worker whose loss ended the job."""
    some = (one for one in reversed(case.hits) if one.mark.code in ("shm-full", "worker-killed"))
    return next((one for one in some if _ended_it(case, one)), None)


def _ended_it(case: Case, hit: Hit) -> bool:
    """Return True if nothing but the loss of this worker ended the job."""
    found = case.failure
    if found is None or certainty_of(case, found) is None:
        return is_last(case, hit)
    if is_victim(found) or _LOST.search(f"{found.type}: {found.message}"):
        return found.first_line - 1 - MOST_AFTER <= hit.line < found.last_line
    return is_last(case, hit)


def _signal_steps(case: Case, signal: int) -> tuple[NextStep, ...]:
    if signal == 9:
        return (black_box(case),)
    return (NextStep("Python's stack at the crash: PYTHONFAULTHANDLER=1"),)
