"""`tk top JOB` over the job's changes: other nodes after a requeue, back in the queue, the end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, cast

import pytest

from tests.unit.session.top.test_node_watch import Probe, line
from tunnelkit.diagnosis.evidence.job import JobView
from tunnelkit.diagnosis.top.history import TopHistory
from tunnelkit.errors import SchedulerError
from tunnelkit.model import JobState
from tunnelkit.session.top import job_top
from tunnelkit.session.top.job_top import JobTop
from tunnelkit.session.top.probe_stream import ProbeStream

RUNS = JobView("7", JobState.RUNNING, "RUNNING", nodes=("node1",))
MOVED = replace(RUNS, nodes=("node2",))
WAITS = replace(RUNS, state=JobState.PENDING, native_state="PENDING", nodes=())
ENDED = replace(MOVED, state=JobState.ENDED, native_state="COMPLETED")


class Cluster:
    """A scheduler that answers with the first of these records, and the next after each frame."""

    cluster = "the lab"

    def __init__(self, records: Iterable[JobView]) -> None:
        self._records = list(records)
        self.probes: dict[str, Probe] = {}
        self.inspector = self

    def inspect(self, job_id: str, mark: str) -> list[str]:
        return []

    async def run(self, argv: list[str]) -> None:
        """Nothing is run."""

    def parse(self, done: object, job_id: str, mark: str) -> Any:
        return type("Inspected", (), {"job": self._records[0]})

    def shown(self) -> None:
        """A new frame was shown."""
        if len(self._records) > 1:
            self._records.pop(0)

    async def start(self, job_id: str, node: str) -> ProbeStream:
        self.probes[node] = probe = Probe(iter([line()]), ends=False)
        return cast(ProbeStream, probe)


async def nodes_shown(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, *known: str
) -> list[list[str]]:
    """The nodes of each frame, without repeats."""
    monkeypatch.setattr(job_top, "_ASK_AGAIN_S", 0.05)
    top = JobTop(cast(Any, cluster), cluster.start, TopHistory())
    found: list[list[str]] = []
    async with asyncio.timeout(30):
        async for frame in top.frames("7", known):
            nodes = [one["node"] for one in frame["nodes"]]
            if found[-1:] != [nodes]:
                found.append(nodes)
                cluster.shown()
    return found


@pytest.mark.parametrize("known", [(), ("node1",)])
async def test_a_job_is_followed_to_its_new_nodes_and_to_its_end(
    monkeypatch: pytest.MonkeyPatch, known: tuple[str, ...]
) -> None:
    cluster = Cluster([RUNS, MOVED, ENDED])
    assert await nodes_shown(cluster, monkeypatch, *known) == [["node1"], ["node2"]]
    assert all(one.closed for one in cluster.probes.values())


async def test_nodes_that_are_out_of_date_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster([MOVED, ENDED])
    assert (await nodes_shown(cluster, monkeypatch, "node1"))[-1] == ["node2"]
    assert all(one.closed for one in cluster.probes.values())


async def test_a_job_that_is_back_in_the_queue_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster([RUNS, WAITS])
    with pytest.raises(SchedulerError, match="job 7 does not run: PENDING"):
        await nodes_shown(cluster, monkeypatch)
    assert cluster.probes["node1"].closed


async def test_a_job_that_has_ended_before_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SchedulerError, match="job 7 does not run: COMPLETED"):
        await nodes_shown(Cluster([ENDED]), monkeypatch, "node2")
