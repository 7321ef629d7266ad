"""A job whose nodes others have, or get first: turn, fragmented, busy."""

from __future__ import annotations

from tunnelkit.diagnosis.verdict import Certainty, Evidence, NextStep, Verdict
from tunnelkit.diagnosis.waiting import lines
from tunnelkit.diagnosis.waiting.alternatives import sooner
from tunnelkit.diagnosis.waiting.room import RoomFor, free_room
from tunnelkit.diagnosis.waiting.situation import Situation
from tunnelkit.diagnosis.waiting.turn import holders
from tunnelkit.diagnosis.waiting.wording import (
    amount,
    joined,
    listed,
    span,
    when,
)


def turn(now: Situation) -> Verdict | None:
    """It would fit now, and others are in front."""
    if not now.fit.fits_now or not now.place.ahead:
        return None
    certainty = Certainty.PROVEN if now.reason == "Priority" else Certainty.LIKELY
    verb = "job is" if now.place.jobs_ahead == 1 else "jobs are"
    text = f"waits for its turn: {now.place.jobs_ahead} {verb} in front"
    gap = now.gap
    because = [lines.asked(now), *lines.in_front(now)]
    if gap is not None and gap.until_s is not None and gap.until_s > now.now_s:
        names = listed([one.name for one in gap.nodes])
        left = span(gap.until_s - now.now_s)
        be = "is" if len(gap.nodes) == 1 else "are"
        if now.sooner_min is not None:
            text += f", but {names} {be} free for {left}"
        because.append(
            Evidence(f"{names} {be} free until {when(gap.until_s, now.now_s)}", lines.QUEUE, "free")
        )
    because += [*lines.starts(now), lines.reason(now)]
    return Verdict(
        "turn",
        text,
        certainty,
        tuple(because),
        next_steps=_or_wait(sooner(now)),
        sooner_min=now.sooner_min,
    )


def seems_free(now: Situation) -> Verdict | None:
    """By its tables it would fit now, and nobody is in front: the tables don't show why."""
    if not now.fit.fits_now:
        return None
    names = listed([one.name for one in now.fit.free])
    age_s = now.now_s - (now.job.eligible_s or now.job.submit_s or now.now_s)
    because = (lines.asked(now), *lines.in_front(now), *lines.starts(now), lines.reason(now))
    if age_s < 120:
        text = f"waits for the scheduler's next round: {names} would fit it now"
        step = NextStep("ask again in a minute", f"tk why {now.job.job_id}")
        return Verdict("not-looked", text, Certainty.LIKELY, because, next_steps=(step,))
    text = f"waits, though {names} seems to have room for it; why is not on record"
    step = NextStep("if it stays, show this to the cluster's support")
    return Verdict("waiting-unknown", text, Certainty.UNKNOWN, because, next_steps=(step,))


def fragmented(now: Situation) -> Verdict | None:
    """Enough is free in all, and not on one node."""
    if not now.fit.scattered:
        return None
    lacks = now.fit.misses[0].lacks if now.fit.misses else ()
    what = joined([amount(one.asked, one.what) for one in lacks]) if lacks else "room for it"
    text = f"waits {_waited(now)}: enough is free, but no single node has {what} free"
    return _wait_verdict(now, "fragmented", text)


def busy(now: Situation) -> Verdict | None:
    """All nodes that fit are in use."""
    if not now.fit.fits_open:
        return None
    names = listed([one.name for one in now.fit.open])
    if len(now.fit.open) == 1:
        what = f"the only node that fits, {names}, is in use"
    elif now.job.shape.nodes_least > 1:
        free, needed = len(now.fit.free), now.job.shape.nodes_least
        what = f"{free} of the {needed} nodes that it needs {'is' if free == 1 else 'are'} free"
    else:
        what = f"the {len(now.fit.open)} nodes that fit ({names}) are in use"
    return _wait_verdict(now, "busy", f"waits {_waited(now)}: {what}{_until(now)}")


def _until(now: Situation) -> str:
    found = holders(now.fit.open, now.cluster.running)
    ends = [one.free_s for one in found if one.free_s is not None]
    if now.job.shape.nodes_least > 1 or not ends or now.place.ahead:
        return ""  # others get them then
    return f", until {when(min(ends), now.now_s)} at the latest"


def _waited(now: Situation) -> str:
    since = now.job.eligible_s or now.job.submit_s
    return span(now.now_s - since) if since is not None else ""


def _wait_verdict(now: Situation, code: str, text: str) -> Verdict:
    known = now.reason.startswith(("Priority", "Resources"))
    certain = known and now.fit.readable and now.place.known
    room = RoomFor(now.job.shape, free_room)
    busy_nodes = tuple(one for one in now.fit.open if not room.tasks(one))
    because = (
        lines.asked(now),
        *lines.free(now),
        *lines.in_use(now, busy_nodes),
        *lines.in_front(now),
        *lines.starts(now),
    )
    certainty = Certainty.PROVEN if certain else Certainty.LIKELY
    steps = _or_wait(sooner(now))
    return Verdict(code, text.replace("  ", " "), certainty, because, next_steps=steps)


def _or_wait(steps: tuple[NextStep, ...]) -> tuple[NextStep, ...]:
    return steps or (NextStep("wait: it starts by itself"),)
