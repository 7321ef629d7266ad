"""The entry of one verdict code."""

from __future__ import annotations

from dataclasses import dataclass

from tunnelkit.diagnosis.verdict import Actor, Stage


@dataclass(frozen=True, slots=True)
class Code:
    """A verdict's code, as `tk why --explain CODE` and docs/why.md describe it.

    meaning: what is the matter. found_by: the evidence that leads to it, and what it can be
    confused with. remedy: what to do. fatal: for `--check`: the job has failed, or never starts.
    """

    name: str
    stage: Stage
    actor: Actor
    meaning: str
    found_by: str
    remedy: str
    fatal: bool = False
