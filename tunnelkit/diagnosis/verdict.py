"""A verdict: what is the matter with a job, how that is known, and the command to type next."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

#: The fact of a verdict on a job's failure; the cause follows it.
_FAILED = "failed"


class Certainty(Enum):
    """The certainty of a verdict.

    PROVEN: a counter or a record says exactly this. LIKELY: several signs point to it, and none
    against it. UNKNOWN: the cause is not on record.
    """

    PROVEN = "proven"
    LIKELY = "likely"
    UNKNOWN = "unknown"


class Actor(Enum):
    """The one who can change it: the user, the program, an administrator, nobody (time passes)."""

    YOU = "you"
    PROGRAM = "program"
    ADMINISTRATOR = "administrator"
    NOBODY = "nobody"


class Stage(Enum):
    """The part of a job's life that a verdict is about."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One thing that was seen.

    text: for people, with the value. label: one word before it (`free`, `in front`). source: the
    command or file that said so. time_s: Unix time of the record; None if it is of now.
    """

    text: str
    source: str
    label: str = "because"
    time_s: float | None = None


@dataclass(frozen=True, slots=True)
class NextStep:
    """Something that the user can do. command: as typed in a shell, or "" for a sentence alone."""

    text: str
    command: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One finding about a job.

    code: a key of `codes.registry.CODES`, stable for scripts. sentence: without the job's number,
    for a line that begins with it. because: the evidence. consequences: what followed from it.
    excluded: what was looked at and is not the cause. next_steps: the best first. sooner_min: the
    longest time limit in minutes with which a waiting job would start now. fact: the beginning of
    the sentence that is certain even if the verdict is not.
    """

    code: str
    sentence: str
    certainty: Certainty
    because: tuple[Evidence, ...] = ()
    consequences: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    next_steps: tuple[NextStep, ...] = ()
    sooner_min: int | None = None
    fact: str = ""

    @property
    def predicate(self) -> str:
        """The sentence with its certainty: `most likely stands still`, after the job's number."""
        if self.certainty is not Certainty.LIKELY:
            return self.sentence
        if not self.fact:
            return f"most likely {self.sentence}"
        rest = self.sentence[len(self.fact) :]
        return f"{self.fact}, most likely{rest}" if rest else self.sentence


def failed_by(
    code: str,
    cause: str,
    certainty: Certainty,
    because: tuple[Evidence, ...],
    consequences: tuple[str, ...] = (),
    *,
    excluded: tuple[str, ...] = (),
    next_steps: tuple[NextStep, ...] = (),
) -> Verdict:
    """Return the verdict on a job that failed. That it did is certain; its cause may not be."""
    return Verdict(
        code,
        f"{_FAILED}: {cause}",
        certainty,
        because,
        consequences,
        excluded,
        next_steps,
        fact=_FAILED,
    )


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All that is said about one job.

    job_id: "" for a session without a scheduler. verdicts: the first is the one; none if there is
    nothing to say. not_asked: sources that did not answer, and why. asked_s: Unix time, by the
    cluster's clock.
    """

    job_id: str
    stage: Stage
    verdicts: tuple[Verdict, ...]
    not_asked: tuple[str, ...] = ()
    asked_s: float = 0.0
    notes: tuple[str, ...] = field(default=())
