"""A job whose nodes take no jobs: down, drained, or reserved before it would end."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tunnelkit.diagnosis.evidence.cluster import NodeView, Window
from tunnelkit.diagnosis.verdict import Certainty, Evidence, NextStep, Verdict
from tunnelkit.diagnosis.waiting import lines
from tunnelkit.diagnosis.waiting.alternatives import sooner
from tunnelkit.diagnosis.waiting.backfill import minutes_until
from tunnelkit.diagnosis.waiting.situation import Situation
from tunnelkit.diagnosis.waiting.wording import (
    limit_words,
    listed,
    nodes_needed,
    when,
)

_UNAVAILABLE = re.compile(r"ReqNodeNotAvail|Nodes required|NodeDown|PartitionNodeLimit")


def nodes_down(now: Situation) -> Verdict | None:
    """The job fits, but nodes that it needs take no jobs."""
    if now.fit.fits_open or now.blocked_by:
        return None
    opened = {one.name for one in now.fit.open}
    closed = tuple(one for one in now.fit.ever if one.name not in opened)
    certainty = Certainty.PROVEN if _UNAVAILABLE.match(now.reason) else Certainty.LIKELY
    names = listed([one.name for one in closed])
    if now.fit.open:
        text = f"waits: it needs {nodes_needed(now.job.shape)}, and {names} {_are_out(closed)}"
    else:
        only = "the only node that fits" if len(closed) == 1 else "all nodes that fit"
        text = f"waits: {only}, {names}, {_are_out(closed)}"
    because = (lines.asked(now), *lines.closed(now, closed), lines.reason(now))
    ask = NextStep(f"ask the administrator when {names} {_is_back(closed)}")
    steps = (*sooner(now), ask)
    return Verdict("nodes-down", text, certainty, because, next_steps=steps)


def _are_out(nodes: Sequence[NodeView]) -> str:
    states = {state for one in nodes for state in one.states}
    words = [
        word
        for word, signs in (
            ("down", {"down", "fail", "failing", "error", "not_responding", "offline"}),
            ("drained", {"drain", "drained", "draining"}),
            ("reserved", {"reserved", "resv", "maint", "resv-exclusive", "maintenance"}),
        )
        if signs & states
    ]
    be = "is" if len(nodes) == 1 else "are"
    return f"{be} {' or '.join(words) if words else 'not open for jobs'}"


def _is_back(nodes: Sequence[NodeView]) -> str:
    return "is back" if len(nodes) == 1 else "are back"


def maintenance(now: Situation) -> Verdict | None:
    """The job would run into a reservation on all nodes that it fits on."""
    if not now.blocked_by:
        return None
    first = now.blocked_by[0]
    kind = "maintenance" if first.maintenance else "reservation"
    agreed = _UNAVAILABLE.match(now.reason) and first.maintenance
    certainty = Certainty.PROVEN if agreed else Certainty.LIKELY
    limit = limit_words(now.job.time_limit_s)
    if first.start_s <= now.now_s:
        until = when(first.end_s, now.now_s)
        text = f"waits: {kind} {first.name} has the nodes that fit until {until}"
    else:
        begins = when(first.start_s, now.now_s)
        text = f"waits: its {limit} would run into {kind} {first.name}, which begins at {begins}"
    windows = [_window(one, now) for one in now.blocked_by[:3]]
    because = (lines.asked(now), *windows, *lines.starts(now), lines.reason(now))
    return Verdict(
        "maintenance",
        text,
        certainty,
        because,
        next_steps=tuple(_before(now, first)),
        sooner_min=_before_min(now, first),
    )


def _window(one: Window, now: Situation) -> Evidence:
    kind = "maintenance" if one.maintenance else "reservation"
    span_text = f"{when(one.start_s, now.now_s)} to {when(one.end_s, now.now_s)}"
    return Evidence(
        f"{kind} {one.name} of {listed(one.nodes)}: {span_text}", lines.WINDOWS, "reserved"
    )


def _before_min(now: Situation, first: Window) -> int | None:
    """Return the limit in minutes that ends before the reservation, if that would start now."""
    if now.sooner_min is not None:
        return now.sooner_min
    minutes = minutes_until(first.start_s, now.now_s)
    return minutes if minutes > 0 and now.fit.fits_now and not now.place.ahead else None


def _before(now: Situation, first: Window) -> list[NextStep]:
    minutes = minutes_until(first.start_s, now.now_s)
    steps = list(sooner(now))
    if now.sooner_min is None and minutes > 0:
        command = f"tk why {now.job.job_id} --start-sooner {minutes}"
        text = f"a time limit of up to {minutes} min ends before the {_kind(first)}"
        steps.insert(0, NextStep(text, command))
    if first.end_s > now.now_s:
        steps.append(NextStep(f"or wait until it is over, at {when(first.end_s, now.now_s)}"))
    return steps


def _kind(window: Window) -> str:
    return "maintenance" if window.maintenance else "reservation"
