"""The lines of evidence under a verdict on a waiting job: asked, free, in front, starts."""

from __future__ import annotations

from collections.abc import Iterator

from tunnelkit.diagnosis.evidence.cluster import NodeView
from tunnelkit.diagnosis.verdict import Evidence
from tunnelkit.diagnosis.waiting.room import RoomFor, free_room
from tunnelkit.diagnosis.waiting.situation import Situation
from tunnelkit.diagnosis.waiting.turn import Holder, holders, owner
from tunnelkit.diagnosis.waiting.wording import (
    amount,
    clock,
    counted,
    joined,
    listed,
    request,
    short_of,
    when,
)

JOB, NODES, QUEUE = "scontrol show job", "sinfo", "squeue"
WINDOWS, PARTITIONS = "scontrol show reservation", "scontrol show partition"


def asked(now: Situation) -> Evidence:
    """What the job asks for."""
    return Evidence(request(now.job), JOB, "asked")


def reason(now: Situation) -> Evidence:
    """The scheduler's own word."""
    return Evidence(f"{now.reason} (the scheduler's reason)", JOB, "reason")


def free(now: Situation) -> Iterator[Evidence]:
    """What is free of what the job needs, by node, and the node that lacks least."""
    nodes = now.fit.open
    totals: dict[str, int] = {}
    rows = []
    room = RoomFor(now.job.shape, free_room)
    for node in nodes:
        has = room.needs(node)
        for one in has:
            totals[one.what] = totals.get(one.what, 0) + one.has
        rows.append((node, has))
    scarce = _scarcest(now)
    where = [
        f"{node.name} {one.has}"
        for node, has in rows
        for one in has
        if one.what == scarce and one.has and scarce != "memory"
    ]
    if totals:
        parts = joined([amount(count, what) for what, count in totals.items()])
        text = f"{parts}, on {counted(len(nodes), 'node')} that could have it"
        if len(nodes) > 1 and where:
            text += f"; {scarce} by node: {listed(where, 6)}"
        yield Evidence(text, NODES, "free")
    if now.fit.misses and now.fit.misses[0].lacks:
        best = now.fit.misses[0]
        yield Evidence(f"{best.node.name} is nearest: {short_of(best.lacks)}", NODES, "free")


def _scarcest(now: Situation) -> str:
    """Return the resource that the nearest node lacks most of."""
    lacks = now.fit.misses[0].lacks if now.fit.misses else ()
    best = max(lacks, key=lambda one: one.share, default=None)
    return best.what if best is not None else "CPUs"


def in_front(now: Situation) -> Iterator[Evidence]:
    """Who is in front, and how many are behind."""
    place = now.place
    if not place.known:
        return
    behind = f"; {counted(place.behind, 'job')} behind" if place.behind else ""
    if not place.ahead:
        yield Evidence(f"nobody in {now.job.partition}{behind}", QUEUE, "in front")
        return
    first = place.ahead[0]
    who = f"{first.job_id} ({owner(first.user, now.job.user)})"
    if place.jobs_ahead > 1:
        who = f"{counted(place.jobs_ahead, 'job')}, the first is {who}"
    elif first.expected_start_s is not None:
        who += f", expected to start {when(first.expected_start_s, now.now_s)}"
    yield Evidence(f"{who}{behind}", QUEUE, "in front")
    if now.cluster.priority_parts and now.job.priority is not None:
        parts = " + ".join(f"{one.name} {one.value}" for one in now.cluster.priority_parts)
        yield Evidence(f"{now.job.priority} = {parts}", "sprio", "priority")


def in_use(now: Situation, nodes: tuple[NodeView, ...]) -> Iterator[Evidence]:
    """Who has the nodes, and until when at the latest; the three that are free first."""
    for one in holders(nodes, now.cluster.running)[:3]:
        if one.jobs:
            yield Evidence(f"{one.node.name} by {_jobs(one, now)}", QUEUE, "in use")


def _jobs(one: Holder, now: Situation) -> str:
    some = [f"{job.job_id} ({owner(job.user, now.job.user)})" for job in one.jobs]
    until = f", until {when(one.free_s, now.now_s)} at the latest" if one.free_s else ""
    return f"{listed(some, 3)}{until}"


def starts(now: Situation) -> Iterator[Evidence]:
    """When the job is expected to start, by the scheduler, and where."""
    job = now.job
    expected, nodes = job.expected_start_s, job.expected_nodes
    if expected is None:
        yield Evidence("not known: the scheduler has not planned it yet", QUEUE, "starts")
        return
    where = f", on {listed(nodes)}" if nodes else ""
    late = expected <= now.now_s
    text = "any moment" if late else f"about {when(expected, now.now_s)}"
    note = "" if late else "; earlier if others end early"
    yield Evidence(f"{text}{where}{note}", QUEUE, "starts")


def closed(now: Situation, nodes: tuple[NodeView, ...]) -> Iterator[Evidence]:
    """Why nodes take no job, and who said so since when; four of them."""
    for one in nodes[:4]:
        text = f"{one.name} is {'+'.join(sorted(one.states))}"
        text += f': "{one.reason}"' if one.reason else ""
        text += f", set by {one.reason_by}" if one.reason_by else ""
        text += f" at {clock(one.since_s, now.now_s)}" if one.since_s else ""
        yield Evidence(text, NODES, "down")
    if len(nodes) > 4:
        yield Evidence(f"and {len(nodes) - 4} more", NODES, "down")
