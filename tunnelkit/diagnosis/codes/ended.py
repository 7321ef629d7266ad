"""Codes of jobs that have ended."""

from __future__ import annotations

from tunnelkit.diagnosis.codes.code import Code
from tunnelkit.diagnosis.verdict import Actor, Stage

ENDED = (
    Code(
        "exit-unknown",
        Stage.ENDED,
        Actor.PROGRAM,
        "The job ended with an exit code, and nothing on record says why.",
        "The scheduler's records, the job's steps and its log were read; none names a cause.",
        "Run it again under `tk loop --post-mortem`, which keeps it at the exception.",
        fatal=True,
    ),
)
