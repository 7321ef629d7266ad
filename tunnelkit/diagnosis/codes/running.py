"""Codes of jobs that run: slow ones, and those where nothing was found."""

from __future__ import annotations

from tunnelkit.diagnosis.codes.code import Code
from tunnelkit.diagnosis.verdict import Actor, Stage

RUNNING = (
    Code(
        "running",
        Stage.RUNNING,
        Actor.NOBODY,
        "The job runs. Nothing was found that holds it back.",
        "All questions of `tk why` were asked, and none had a finding.",
        "Nothing. `tk why --explain` lists what is looked at.",
    ),
)
