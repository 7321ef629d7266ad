"""Codes of waiting jobs that PBS's comments need beside those of `waiting`."""

from __future__ import annotations

from tunnelkit.diagnosis.codes.code import Code
from tunnelkit.diagnosis.verdict import Actor, Stage

WAITING_PBS = (
    Code(
        "limit-queue",
        Stage.WAITING,
        Actor.NOBODY,
        "A limit of the queue, or of the whole server, is used up by jobs that run.",
        "The scheduler's comment names the queue or the server and what is limited.",
        "Wait until one of these jobs ends, or use another queue.",
    ),
    Code(
        "time-window",
        Stage.WAITING,
        Actor.NOBODY,
        "Jobs of this kind start only at certain times: prime time, or dedicated time.",
        "The scheduler's comment names the time.",
        "Wait for that time, or use a queue without such times.",
    ),
    Code(
        "reservation-ahead",
        Stage.WAITING,
        Actor.YOU,
        "The job would still run when a reservation of its nodes begins.",
        "The scheduler's comment says that it would interfere with a reservation.",
        "A time limit that ends before the reservation may start at once.",
    ),
    Code(
        "launch-retry",
        Stage.WAITING,
        Actor.ADMINISTRATOR,
        "The scheduler chose a node, but the job could not be started there; it tries again.",
        "The scheduler's comment holds the error of the attempt.",
        "Wait for the next attempt. If it stays, show the error to the administrator.",
    ),
    Code(
        "scheduler-error",
        Stage.WAITING,
        Actor.ADMINISTRATOR,
        "The scheduler itself failed while it looked at the job.",
        "The scheduler's comment says so.",
        "Submit the job again. If it stays, show the comment to the administrator.",
    ),
)
