"""The verdict on a waiting job of PBS where the scheduler's comment decides.

The comment is of the scheduler's last round. `Can Never Run:` is PBS's own judgement, and proven;
where it only says `Not Running:` of something that can't change by waiting, that is likely.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tunnelkit.diagnosis.evidence.cluster import ClusterView
from tunnelkit.diagnosis.evidence.job import JobView
from tunnelkit.diagnosis.verdict import Certainty, Evidence, NextStep, Verdict
from tunnelkit.diagnosis.waiting.pbs.forms import Form, find_form
from tunnelkit.diagnosis.waiting.pbs.resources import LIMIT_FORMS, amounts_of, find_lack, thing

SOURCE = "qstat -f: comment"
_NEVER = re.compile(r"Can Never Run(: *|$)", re.IGNORECASE)
_NOT_NOW = re.compile(r"Not Running(: *|$)", re.IGNORECASE)
#: The longest comment that is read: PBS's own are shorter.
_LONGEST = 4000
#: A longer value of what PBS fills in, such as a list of nodes, is cut.
_LONGEST_VALUE = 200
_CANCEL = ("cancel it, and ask for what the cluster has", "qdel {job}")
#: Codes that stay where PBS says `Can Never Run`: another person must act.
_OTHERS_ACT = ("budget", "scheduler-error")
#: A comment of a form that is not known: a word in it that says what it is about.
_LOOSE = (
    ("limit", "limit-queue", "waits: a limit is used up; it starts when other jobs end"),
    ("would exceed", "limit-queue", "waits: a limit is used up; it starts when other jobs end"),
    ("fairshare", "turn", "waits for its turn: others used less of their share"),
    ("preempt", "turn", "waits for its turn"),
    ("reservation", "reservation-ahead", "waits for a reservation that is in its way"),
    ("dedicated", "time-window", "waits for another time: the dedicated time is in its way"),
    ("primetime", "time-window", "waits for another time: prime time is in its way"),
    ("resource", "busy", "waits for the resources to become free"),
    ("node", "busy", "waits for the nodes to become free"),
)


@dataclass(frozen=True, slots=True)
class Reading:
    """A comment, understood. step, command: `{job}` stands for the job's id.

    never: PBS says that the job can never run. known: its form is one of OpenPBS's.
    """

    code: str
    sentence: str
    step: str
    command: str
    never: bool
    known: bool = True


def read_comment(comment: str) -> Reading | None:
    """Return what a comment means; None if it is empty or PBS's of a job that does not wait."""
    text = " ".join(comment[:_LONGEST].split())
    if not text:
        return None
    never = _NEVER.match(text)
    prefix = never or _NOT_NOW.match(text)
    said = text[prefix.end() :] if prefix else text
    found = find_lack(said) or find_form(said) or find_form(said, LIMIT_FORMS)
    if found is None:
        return _loose(said, never=never is not None)
    form, filled = found
    filled.setdefault("thing", thing(filled.get("res", "")))
    return _reading(form, filled, said, never=never is not None)


def judge_comment(job: JobView, cluster: ClusterView, now_s: float) -> Verdict | None:
    """Return the verdict that the job's comment leads to; None if it has none."""
    reading = read_comment(job.reason or "")
    if reading is None:
        return None
    said = Evidence(" ".join((job.reason or "").split())[:400], SOURCE, "comment")
    return Verdict(
        reading.code,
        reading.sentence,
        _certainty(reading),
        (said, *_limits(reading, cluster)),
        next_steps=(
            NextStep(
                reading.step.replace("{job}", job.job_id),
                reading.command.replace("{job}", job.job_id),
            ),
        ),
    )


def _certainty(reading: Reading) -> Certainty:
    if reading.never:
        return Certainty.PROVEN
    if not reading.known:
        return Certainty.UNKNOWN
    return Certainty.LIKELY if reading.code in ("never", "limit-job") else Certainty.PROVEN


def _reading(form: Form, filled: dict[str, str], said: str, *, never: bool) -> Reading:
    short = {name: value[:_LONGEST_VALUE] for name, value in filled.items()}
    sentence = form.sentence.format_map(short)
    step, command, code = form.step, form.command, form.code
    if never:
        sentence = _never_sentence(sentence, said, filled)
        if code not in _OTHERS_ACT:
            code = "limit-job" if code.startswith("limit-") else "never"
        if code != form.code:
            step, command = _CANCEL
    return Reading(code, sentence, step, command, never)


def _never_sentence(sentence: str, said: str, filled: dict[str, str]) -> str:
    """Return the sentence for `Can Never Run:` of a form that is also seen with `Not Running:`."""
    amounts = amounts_of(said)
    if amounts:
        have = f"the {filled['pool']} has" if filled.get("pool") else "all nodes together have"
        return (
            f"can never run: it asks for more {filled['thing']} than {have} "
            f"({filled['res']}: {amounts[0]} asked for, {amounts[1]} free of {amounts[2]})"
        )
    for begin in ("waits in vain: ", "waits: "):
        if sentence.startswith(begin):
            return f"can never run: {sentence.removeprefix(begin)}"
    if ": " in sentence:
        return f"can never run: {sentence.partition(': ')[2]}"
    return f"can never run: no node has what it asks for{_name(filled)}"


def _name(filled: dict[str, str]) -> str:
    return f" ({filled['res']})" if filled.get("res") else ""


def _loose(said: str, *, never: bool) -> Reading:
    """Return the reading of a comment whose form is not known, by a word in it."""
    show = "show the comment to the administrator if it stays"
    said = said[:_LONGEST_VALUE]
    if never:
        sentence = f"can never run, for a reason in words that tk does not know: {said}"
        return Reading("never", sentence, *_CANCEL, never=True, known=False)
    lower = said.casefold()
    for word, code, sentence in _LOOSE:
        if word in lower:
            return Reading(code, sentence, show, "", never=False, known=False)
    sentence = f"waits, for a reason in words that tk does not know: {said}"
    return Reading("waiting-unknown", sentence, show, "", never=False, known=False)


def _limits(reading: Reading, cluster: ClusterView) -> tuple[Evidence, ...]:
    """Return the limits on running jobs that are reached."""
    if not reading.code.startswith("limit-"):
        return ()
    return tuple(
        Evidence(
            f"{one.owner} allows {one.limit:g} {one.what}, and {one.used:g} run ({one.name})",
            "qstat -Qf" if one.owner.startswith("queue") else "qstat -Bf",
            "limit",
        )
        for one in cluster.limits
        if one.used >= one.limit
    )
