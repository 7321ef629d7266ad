"""Ended by a signal, or with an exit code that nothing explains."""

from __future__ import annotations

import re

from tunnelkit.diagnosis.ended.case import LATE_S, Case, black_box
from tunnelkit.diagnosis.ended.exceptions import one_line
from tunnelkit.diagnosis.ended.last_words import abort_words
from tunnelkit.diagnosis.ended.log.raised import FATAL
from tunnelkit.diagnosis.ended.record.failed_steps import TK_STEPS, FailedStep
from tunnelkit.diagnosis.ended.time_limit import near_limit
from tunnelkit.diagnosis.ended.words import (
    ABRT,
    BUS,
    FPE,
    HUP,
    ILL,
    INT,
    KILL,
    PIPE,
    SEGV,
    TERM,
    XCPU,
    XFSZ,
    clock,
    ended_by,
    signal_name,
    span,
)
from tunnelkit.diagnosis.evidence.box import ProcessEnd, SignalSeen
from tunnelkit.diagnosis.verdict import Certainty, Evidence, NextStep, Verdict, failed_by

_STACK = NextStep("Python's stack at the crash: PYTHONFAULTHANDLER=1 in the script")
_AGAIN = NextStep("run it where an exception is kept", "tk loop --post-mortem")
#: signal -> code, what happened, what to do.
_CRASHES: dict[int, tuple[str, str, tuple[NextStep, ...]]] = {
    SEGV: ("segfault", "crashed: segmentation fault", (_STACK,)),
    ABRT: ("abort", "aborted itself (ABRT): a C or C++ library gave up", (_STACK,)),
    BUS: ("bus", "crashed: bus error", (
        NextStep("/dev/shm full, or a mapped file that was cut: fewer workers"), _STACK)),
    ILL: ("illegal-instruction",
          "crashed: illegal instruction, most often one that this CPU lacks", (
        NextStep("built for another CPU: build it on the node, or ask for another",
                 "tk up --constraint"),)),
    FPE: ("arithmetic-error", "crashed: arithmetic error, most often an integer divided by zero",
          (_STACK,)),
    XFSZ: ("file-size", "wrote a file larger than its limit", (
        NextStep("`ulimit -f` is the limit"),)),
    XCPU: ("cpu-time", "used more CPU time than its limit", (
        NextStep("`ulimit -t` is the limit"),)),
}  # fmt: skip
_WORDS = {
    "Segmentation fault": SEGV, "Aborted": ABRT, "Bus error": BUS, "Illegal instruction": ILL,
    "Floating point exception": FPE, "Killed": KILL, "Terminated": TERM,
    "File size limit exceeded": XFSZ, "CPU time limit exceeded": XCPU, "Broken pipe": PIPE,
}  # fmt: skip
_NAMES = "|".join(_WORDS)
#: A line so far above the end is of a helper.
_MOST_AFTER = 20
#: Codes that common programs end with.
_HINTS = {
    124: "124 is the code of `timeout` when the time is over",
    125: "125 is the code of `timeout` or docker when it fails itself",
    128: "128 is git's code for a fatal error",
}
#: bash, dash, srun, mpirun.
_SHAPES = (
    re.compile(rf"^\S+: line \d+: +\d+ (?P<how>{_NAMES})\b(?P<rest>.*)"),
    re.compile(rf"^(?P<how>{_NAMES})(?P<rest>)(?: \(core dumped\))?$"),
    re.compile(rf"^srun: error: (?P<rest>\S+: tasks? \S+): (?P<how>{_NAMES})"),
)
#: Python, UCX, Open MPI, Fortran; srun and MPICH of a task.
_SEGV_SAID = re.compile(
    r"segmentation fault|SIGSEGV|signal:? 11\b|exit (?:code|status):? 139\b", re.IGNORECASE
)
_MPIRUN = re.compile(
    r"noticed that process rank (?P<rank>\d{1,6}) with PID \d+ on node (?P<node>\S+) exited on "
    r"signal (?P<signal>\d{1,2})"
)


def crashed(case: Case) -> Verdict | None:
    """Rule 18: a signal that a crash brings, with the last Python frame if it is in the log."""
    signal, because, certainty = _signal(case)
    entry = _CRASHES.get(signal or 0)
    if entry is None or case.hidden:
        return None
    code, sentence, steps = entry
    found = case.failure
    # The log of a program that crashed says so; another one gave itself the smaller code.
    silent = case.text.strip() and not _SEGV_SAID.search(case.text)
    if silent and _by_sacct_alone(case, signal):
        return None
    if found is not None and found.type.startswith(FATAL):
        place = found.place
        because.insert(0, Evidence(f"{FATAL}: {found.message}", "faulthandler, in the log"))
        if place is not None:
            sentence += f", at {place.file.rpartition('/')[2]}:{place.line} in {place.function}"
            steps = tuple(one for one in steps if one is not _STACK) or (
                NextStep("run it in the debugger", "tk loop"),
            )
    said = abort_words(case) if signal == ABRT else None
    if said is not None:
        because.insert(0, said[1])
        no_memory = said[0].startswith("std::bad_alloc")
        words = "malloc had no memory to give (std::bad_alloc)" if no_memory else said[0]
        sentence = f"aborted: {words}"
    return failed_by(code, f"it {sentence}", certainty, tuple(because), next_steps=steps)


def killed(case: Case) -> Verdict | None:
    """Rule 19: KILL, where it is on record who sent it and why."""
    signal, because, _ = _signal(case)
    if signal != KILL or case.hidden:
        return None
    first = case.box.first_failure if case.box is not None else None
    limit = case.box.cpu_limit_s if case.box is not None else None
    if first is not None and limit is not None and (first.cpu_s or 0) >= limit:
        text = f"it had used {first.cpu_s:.0f} s of CPU, its limit is {limit} s"
        return failed_by(
            "cpu-limit",
            f"{first.name or 'a process'} used up its CPU time of {span(limit)}",
            Certainty.PROVEN,
            (Evidence(text, "black box"), *because),
            next_steps=(NextStep("`ulimit -Ht` is the limit, often of login hosts"),),
        )
    sender = _sender(case, KILL)
    if sender is not None and "oomd" in sender.sender_name:
        return failed_by(
            "oomd",
            "systemd-oomd killed it: the node was short of memory",
            Certainty.PROVEN,
            (_sent(sender), *because),
            next_steps=(NextStep("more memory: --mem"),),
        )
    if near_limit(case):
        return Verdict(
            "timeout",
            "was killed as its time limit was reached",
            Certainty.LIKELY,
            (case.record(),),
            next_steps=(NextStep("with more time: --time"),),
        )
    return None


def terminated(case: Case) -> Verdict | None:
    """Rule 20: TERM, INT or HUP: somebody asked it to end."""
    signal, because, _ = _signal(case)
    if signal not in (TERM, INT, HUP) or case.hidden or _by_sacct_alone(case, signal):
        return None
    sender = _sender(case, signal)
    if sender is None:
        return Verdict(
            "terminated",
            f"was ended by {signal_name(signal)}; who sent it is not on record",
            Certainty.UNKNOWN,
            tuple(because),
            excluded=looked_at(case),
            next_steps=(black_box(case),),
        )
    return Verdict(
        "terminated",
        ended_by(sender, case.box.uid if case.box is not None else None),
        Certainty.PROVEN,
        (_sent(sender), *because),
    )


def unexplained(case: Case) -> Verdict | None:
    """Rule 21: a bad end, and nothing says why."""
    if not case.failed or case.hidden:
        return None
    signal, because, _ = _signal(case)
    last = case.last_line()
    if last:
        because.append(Evidence(f"its log's last line: {last}", "log", "seen"))
    elif case.end.logs and not any(log.problem or log.text.strip() for log in case.end.logs):
        because.append(Evidence("its log is empty", "log", "seen"))
    if case.failure is not None:
        because.append(Evidence(f"earlier in the log: {one_line(case.failure)}", "log", "also"))
    hint = _HINTS.get(case.exit.code or 0) or _HINTS.get(case.exit.other or 0)
    if hint and not signal:
        because.append(Evidence(hint, "sysexits, timeout(1)", "maybe"))
    alone = _by_sacct_alone(case, signal)
    if signal == KILL and not alone:
        itself = case.exit.signal == KILL and case.exit.other is None
        who = "was killed" if itself else "failed: a process of it was killed"
        return Verdict(
            "killed-unknown",
            f"{who} (KILL); who or what sent it is not on record",
            Certainty.UNKNOWN,
            tuple(because),
            excluded=looked_at(case),
            next_steps=(black_box(case),),
            fact="" if itself else "failed",
        )
    how = f"by {signal_name(signal)}" if signal and not alone else str(case.exit)
    return failed_by(
        "exit-unknown",
        f"it ended {how}, and nothing on record says why",
        Certainty.UNKNOWN,
        tuple(because),
        excluded=looked_at(case),
        next_steps=(_AGAIN, black_box(case)),
    )


def looked_at(case: Case) -> tuple[str, ...]:
    """Return what was looked at and is not the cause."""
    found = []
    limit = case.job.time_limit_s if case.job is not None else None
    if limit and case.ran_s is not None and case.ran_s < limit * 0.98:
        found.append(f"the time limit ({clock(case.ran_s)} of {clock(limit)})")
    if case.text and case.failure is None:
        found.append("an exception in the log")
    if (
        case.box is not None
        and case.box.memory
        and all(one.oom_kill == 0 for one in case.box.memory)
    ):
        found.append("memory (no kill was counted)")
    return tuple(found)


def _signal(case: Case) -> tuple[int | None, list[Evidence], Certainty]:
    """Return the signal that ended it, the evidence, and how sure that is.

    A code of 128+N may be the program's own, unless the shell's line in the log says the same."""
    first = case.box.first_failure if case.box is not None else None
    if first is not None and first.signal and case.failed:
        return first.signal, [_ended(first, case), case.record()], Certainty.PROVEN
    line, signal, near = _line(case)
    because = [Evidence(line[:200], "log")] if line else []
    own, whole = case.exit.signal, case.exit.other is None
    step, certainty = _by_step(case)
    # A code that may be another one says less than the step that ended by the signal.
    if own and (whole or step is None):
        sure = not case.exit.by_shell or (signal == own and whole)
        return own, [*because, case.record()], Certainty.PROVEN if sure else Certainty.LIKELY
    if step is not None and step.signal:
        seen = Evidence(step.text, "sacct" if step.proven else "log")
        return step.signal, [*because, seen, case.record()], certainty
    if signal is not None and case.failed and (near or case.exit.code == signal):
        return signal, [*because, case.record()], Certainty.LIKELY
    return None, [case.record()], Certainty.LIKELY


def _by_step(case: Case) -> tuple[FailedStep | None, Certainty]:
    """Return the step by whose signal the job may have ended, and how sure that is."""
    own = case.exit.signal
    rows = {one.step: one for one in case.end.steps}
    steps = [
        (one, rows[one.step])
        for one in case.failed_steps
        if one.signal and own in (None, one.signal) and one.step in rows
    ]
    # The script began another step after it: it was tried again, or it did not matter.
    found = next(((one, row) for one, row in reversed(steps) if not case.followed(row)), None)
    if found is None:
        return None, Certainty.LIKELY
    step, row = found
    end_s = row.end_s or 0.0
    others = (one for one in case.end.steps if one.step.isdecimal() and one.name not in TK_STEPS)
    last = all((one.end_s or 0.0) <= end_s for one in others) and case.went_on_s(row) <= LATE_S
    codes, by_signal = {case.exit.code, case.exit.other}, 128 + (step.signal or 0)
    passed_on = bool(codes & {0, 1, by_signal}) or codes == {None} or own == step.signal
    return step, Certainty.PROVEN if last and passed_on else Certainty.LIKELY


def _by_sacct_alone(case: Case, signal: int | None) -> bool:
    """Return True if only a code says so that may be another one, too."""
    first = case.box.first_failure if case.box is not None else None
    seen = {_line(case)[1], *(one.signal for one in case.failed_steps)}
    seen.add(first.signal if first is not None else None)
    return signal is not None and case.exit.other is not None and signal not in seen


def _line(case: Case) -> tuple[str, int | None, bool]:
    """Return the last line on a signal, the signal, and whether the program wrote little after."""
    first = max(0, len(case.lines) - 200)
    for number in range(len(case.lines) - 1, first - 1, -1):
        line = case.lines[number]
        found = (match for one in _SHAPES if (match := one.match(line[:1000])) is not None)
        by_shell, by_mpirun = next(found, None), _MPIRUN.search(line[:1000])
        if by_shell is not None or by_mpirun is not None:
            near = case.lines_after(number) <= _MOST_AFTER
            signal = _WORDS[by_shell["how"]] if by_shell is not None else None
            return line, signal or int(by_mpirun["signal"] if by_mpirun else 0), near
    return "", None, False


def _ended(first: ProcessEnd, case: Case) -> Evidence:
    rank = f"rank {first.rank}, " if first.rank is not None else ""
    node = f" on {case.box.node}" if case.box is not None and case.box.node else ""
    text = f"{first.name or 'process'} ({rank}pid {first.pid}){node} ended by "
    return Evidence(text + signal_name(first.signal or 0), "black box", time_s=first.ended_s)


def _sender(case: Case, signal: int) -> SignalSeen | None:
    for one in case.box.signals if case.box is not None else ():
        if one.signal == signal and (one.sender_uid is not None or one.sender_name):
            return one
    return None


def _sent(sender: SignalSeen) -> Evidence:
    who = f"uid {sender.sender_uid}, pid {sender.sender_pid} {sender.sender_name}".strip()
    return Evidence(f"{signal_name(sender.signal)} from {who}", "siginfo", time_s=sender.time_s)
