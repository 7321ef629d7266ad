"""Codes of jobs that wait."""

from __future__ import annotations

from tunnelkit.diagnosis.codes.code import Code
from tunnelkit.diagnosis.verdict import Actor, Stage

WAITING = (
    Code(
        "waiting-unknown",
        Stage.WAITING,
        Actor.NOBODY,
        "The job waits, and the scheduler gives no reason that tk can explain.",
        "The reason in the scheduler's answer is not in its documentation.",
        "Ask again in a minute. If it stays, show the reason to the cluster's support.",
    ),
)
