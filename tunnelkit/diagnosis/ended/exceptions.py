"""An exception that ended the program, and what was not there when it started."""

from __future__ import annotations

import re

from tunnelkit.diagnosis.ended.case import Case
from tunnelkit.diagnosis.ended.log.marks import Hit
from tunnelkit.diagnosis.ended.log.raised import FATAL, Raised
from tunnelkit.diagnosis.ended.log.traceback import Traceback
from tunnelkit.diagnosis.ended.record.failed_steps import NO_STEPS, SHELLS, TK_STEPS
from tunnelkit.diagnosis.ended.words import INT
from tunnelkit.diagnosis.verdict import Certainty, Evidence, NextStep, Verdict, failed_by

#: The program wrote more than this after it: the exception was probably handled.
MOST_AFTER = 20
#: The exit code of an exception that nothing caught.
_UNCAUGHT = 1
_TASK = re.compile(r"srun: error: .*\btasks? (?P<tasks>[\d,\[\]-]+)")
_POST_MORTEM = NextStep("stop at it in the debugger", "tk loop --post-mortem")
_MEMORY = NextStep(
    "malloc refused so much: look for a size that is a bug, then at `ulimit -v`; --mem does not "
    "change it"
)
_LATER = NextStep("the line is later than the cause; for the true one: CUDA_LAUNCH_BLOCKING=1")


def exception(case: Case) -> Verdict | None:
    """Rule 16: any other exception."""
    found = case.failure
    if found is None or found.type.startswith(FATAL) or not case.failed:
        return None
    certainty = certainty_of(case, found)
    if certainty is None or _is_by_int(case, found):
        return None
    steps: tuple[NextStep, ...] = (_POST_MORTEM,)
    if found.type.rpartition(".")[2] in ("MemoryError", "_ArrayMemoryError"):
        steps = (_MEMORY, *steps)
    elif "device-side assert" in found.message or "illegal memory access" in found.message:
        steps = (_LATER, *steps)
    return failed_by(
        "exception",
        one_line(found),
        certainty,
        (
            *source_lines(found),
            Evidence(f"traceback, line {found.first_line} of the log", "log"),
            case.record(),
            *handled_lines(found),
        ),
        consequences(case, found),
        next_steps=steps,
    )


def not_there(case: Case) -> Verdict | None:
    """Rule 17: a module, a library, or a version of glibc that the node has not."""
    # An import that failed and was handled is no cause of another exception.
    hit = hit_of_end(case, "missing-module", "missing-library", "glibc-too-old")
    if hit is None or not case.failed:
        return None
    found = case.failure
    name = hit.group("name")
    steps = {
        "missing-module": NextStep(
            "which Python runs, and does it have it", f"tk run python -c 'import {_top(name)}'"
        ),
        "missing-library": NextStep("load its module, or set LD_LIBRARY_PATH; on the node: ldd"),
        "glibc-too-old": NextStep(
            "it was built on a newer system: build or install it on this cluster"
        ),
    }
    certainty = certainty_of(case, found) if found is not None else Certainty.LIKELY
    if certainty is None:
        return None
    return failed_by(
        hit.mark.code,
        hit.sentence + (_where(found) if found is not None else ""),
        certainty,
        (Evidence(hit.text[:200], "log"), case.record()),
        next_steps=(steps[hit.mark.code],),
    )


def certainty_of(case: Case, found: Traceback) -> Certainty | None:
    """Return how sure it is that this exception ended the job; None if it probably did not.

    Proven: it is the last that the program wrote, and the exit code is that of an exception. Of
    two logs only their times say what was written last.
    What was raised on its way out may be what ended the job, and an exception within `finally` is
    written as one within `except`. With several ranks only torchrun's
    table, with its rank, is as good. Of several tasks another one may have failed before."""
    after = case.lines_after(found.last_line - 1)
    codes = {case.exit.code, *(one.code for one in case.failed_steps)}
    if case.hidden and _UNCAUGHT not in codes:
        return None
    if found.root is not None:
        same = found.rank is not None and found.root.exit_code == _UNCAUGHT and found.is_last
        same = same and not found.handled and not _has_tasks(case, found)
        return Certainty.PROVEN if same and found.first_line else Certainty.LIKELY
    if found.thread:
        return Certainty.LIKELY if after <= MOST_AFTER else None
    single = found.is_last and not found.handled and not found.followed
    last = single and case.ends_with(found.last_line - 1)
    alone = found.rank is None and not _has_tasks(case, found)
    if alone and last and _is_code_of_it(case):
        return Certainty.PROVEN
    if found.rank is not None or after <= MOST_AFTER:
        return Certainty.LIKELY
    return None


def _has_tasks(case: Case, found: Traceback) -> bool:
    """Return True if a step had several tasks, or srun named one before this exception."""
    runs = [one for one in case.end.steps if one.step not in NO_STEPS and one.name not in TK_STEPS]
    if any((one.tasks or 0) > 1 for one in runs):
        return True
    named = ((at, _TASK.match(line)) for at, line in enumerate(case.lines, 1))
    return any(one and (at < found.first_line or one["tasks"] != "0") for at, one in named)


def _is_by_int(case: Case, found: Traceback) -> bool:
    """Return True if INT ended the job: Python raises KeyboardInterrupt for it."""
    return found.type == "KeyboardInterrupt" and case.exit.signal == INT


def _is_code_of_it(case: Case) -> bool:
    """Return True if the job, or the last of its steps to end, has the exit code of an exception.

    A step that failed before another one ended may have been tolerated."""
    failed = [one for one in case.failed_steps if one.step]
    runs = {
        one.step: one.end_s
        for one in case.end.steps
        if one.step not in ("", *NO_STEPS) and one.name not in TK_STEPS
    }
    bad = {one.step for one in failed}
    # By its name a shell may also have been the script's own step.
    bad |= {
        one.step for one in case.end.steps if one.name in SHELLS and (one.exit_code or one.signal)
    }
    if len(runs) > 1 and bad:
        last_s = max((end_s for end_s in runs.values() if end_s is not None), default=None)
        if any(last_s is None or runs.get(one) != last_s for one in bad):
            return False
    if case.exit.code == _UNCAUGHT or any(one.code == _UNCAUGHT and one.proven for one in failed):
        return True
    # Without rows of steps: srun's lines, where the script itself has no other code.
    lines = {one.code for one in case.failed_steps}
    return not runs and case.hidden and lines == {_UNCAUGHT}


def one_line(found: Traceback) -> str:
    """Return `KeyError: 'label' at data.py:88 in collate (rank 0)`."""
    return _said(found.cause) + _where(found)


def _said(raised: Raised) -> str:
    message = (raised.message.split("\n") or [""])[0][:200]
    return raised.type + (f": {message}" if message else "")


def source_lines(found: Traceback) -> tuple[Evidence, ...]:
    """Return the line that raised it, if it was printed."""
    place = found.place
    if place is None or not place.source:
        return ()
    name = place.file.rpartition("/")[2]
    return (Evidence(f"{name}:{place.line}  {place.source[:100]}", place.file, "at"),)


def handled_lines(found: Traceback) -> tuple[Evidence, ...]:
    """Return what the program handled when this was raised."""
    return tuple(
        Evidence(f"raised while it handled {_said(one)}", "log", "also")
        for one in found.handled[-3:]
    )


def consequences(case: Case, found: Traceback) -> tuple[str, ...]:
    """Return what followed from it: the marks of other ranks, and what the script did."""
    texts = []
    victims = [
        one
        for one in case.hits
        if one.mark.victim and not (found.first_line <= one.line + 1 <= found.last_line)
    ]
    if victims:
        ranks = sorted({one.rank for one in victims if one.rank is not None})
        who = f"rank {', '.join(map(str, ranks[:8]))}" if ranks else "other ranks"
        texts.append(f"{who}: {victims[0].sentence}")
    if len(found.raised) > 1:
        last = found.raised[-1]
        if (last.type, last.message) != (found.type, found.message):
            again = f"it was raised again as {_said(last)}"
            texts.append(again if found.is_last else f"on its way out: {_said(last)}")
    if case.hidden:
        texts.append(f"{case.failed_steps[0].text}; the script went on and ended with 0")
    return tuple(texts)


def last_hit(case: Case, *codes: str) -> Hit | None:
    """Return the last mark of these codes: the one nearest to the end."""
    return next((one for one in reversed(case.hits) if one.mark.code in codes), None)


def hit_of_end(case: Case, *codes: str) -> Hit | None:
    """Return the last mark of these codes that is of the failure; without one, near the end."""
    found = case.failure
    some = [one for one in reversed(case.hits) if one.mark.code in codes]
    if found is None:
        return next((one for one in some if case.lines_after(one.line) <= MOST_AFTER), None)
    own = (one for one in some if _stands_in(found, one))
    return next(own, None) or next((one for one in some if is_of(found, one, case)), None)


def is_last(case: Case, hit: Hit) -> bool:
    """Return True if nothing else that the log shows has ended the job since."""
    found = case.failure
    if found is not None and certainty_of(case, found) is not None:
        return is_of(found, hit, case)
    return case.lines_after(hit.line) <= MOST_AFTER


def is_of(found: Traceback, hit: Hit, case: Case) -> bool:
    """Return True if the exception is the one that this mark stands in, or a copy of it."""
    # Another rank's copy, or that in a table of torchrun.
    own = case.lines[found.cause_line - 1 : found.last_line + 2] if found.first_line else ()
    copied = hit.text[:80] in "\n".join(own) or hit.text.endswith(_said(found.cause))
    return copied or _stands_in(found, hit)


def _stands_in(found: Traceback, hit: Hit) -> bool:
    return found.first_line > 0 and found.cause_line <= hit.line + 1 <= found.last_line + 2


def _where(found: Traceback) -> str:
    place = found.place
    if place is None:
        return f" (rank {found.rank})" if found.rank is not None else ""
    function = f" in {place.function}" if place.function and place.function != "<module>" else ""
    rank = f" (rank {found.rank})" if found.rank is not None else ""
    return f" at {place.file.rpartition('/')[2]}:{place.line}{function}{rank}"


def _top(module: str) -> str:
    return "".join(one for one in module.partition(".")[0] if one.isalnum() or one == "_")
