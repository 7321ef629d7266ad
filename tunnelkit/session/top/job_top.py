"""All of one job: its nodes' probes, the scheduler's record once a minute, and the frames."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Sequence

from tunnelkit.diagnosis.evidence.job import JobView
from tunnelkit.diagnosis.running.look import Look
from tunnelkit.diagnosis.running.rules import judge_running
from tunnelkit.diagnosis.top.frame import NodeRow, TopInfo
from tunnelkit.diagnosis.top.history import TopHistory
from tunnelkit.diagnosis.top.rows import (
    gpu_rows,
    node_row,
    process_rows,
    silent_node,
    thread_rows,
)
from tunnelkit.diagnosis.verdict_json import VerdictInfo, verdict_info
from tunnelkit.errors import SchedulerError, TunnelkitError
from tunnelkit.model import JobState
from tunnelkit.mux.tasks import cancel_all
from tunnelkit.session.top.node_watch import NodeWatch
from tunnelkit.session.top.probe_stream import OpenProbe
from tunnelkit.session.why.diagnose import newest_job
from tunnelkit.session.why.sources import WhySources

_ASK_AGAIN_S = 60.0
#: Nodes answer one by one: a frame waits a moment for the others.
_GATHER_S = 0.1
_MOST_NODES = 64


class JobTop:
    """Frames of one job. Each `frames` owns its probes, and ends them."""

    def __init__(self, sources: WhySources, start: OpenProbe, history: TopHistory) -> None:
        self._sources = sources
        self._start = start
        self._history = history
        self._news = asyncio.Event()
        self._job: JobView | None = None
        self._notes: list[str] = []

    async def frames(
        self, job_id: str | None, nodes: Sequence[str] = ()
    ) -> AsyncGenerator[TopInfo]:
        """Yield a frame whenever a node has answered, until the job ends.

        job_id: None: the user's newest. nodes: the job's, where they are known already; then they
        are sampled while the scheduler is asked. A job that runs on other nodes, after a requeue,
        is followed there. Raises SchedulerError if the job does not run, ConnectionFailed.
        """
        job_id = job_id or await newest_job(self._sources)
        watches, tasks = self._begin(job_id, nodes)
        asking: list[asyncio.Task[None]] = []
        try:
            job = await self._record(job_id)
            runs_on = job.nodes if set(nodes) == set(job.nodes) else ()
            asking.append(asyncio.create_task(self._ask_on(job_id)))
            while True:
                if job.state is not JobState.RUNNING or not job.nodes:
                    raise SchedulerError(
                        f"job {job_id} does not run: {job.native_state}", hint=f"tk why {job_id}"
                    )
                if job.nodes != runs_on:
                    await cancel_all(*tasks)
                    runs_on = job.nodes
                    watches, tasks = self._begin(job.step_id, job.nodes)
                more = len(job.nodes) > len(watches)
                first = f"the first {len(watches)} of its {len(job.nodes)} nodes"
                self._notes = [first] if more else []
                await self._news.wait()
                await asyncio.sleep(_GATHER_S)
                self._news.clear()
                job = self._job or job
                if any(one.newest is not None or one.problem for one in watches):
                    yield self._frame(watches)
                if job.state is JobState.ENDED:
                    return
        finally:
            await cancel_all(*tasks, *asking)

    def _begin(
        self, job_id: str, nodes: Sequence[str]
    ) -> tuple[list[NodeWatch], list[asyncio.Task[None]]]:
        watches = [
            NodeWatch(self._start, job_id, node, self._news.set) for node in nodes[:_MOST_NODES]
        ]
        return watches, [asyncio.create_task(one.run()) for one in watches]

    async def _record(self, job_id: str) -> JobView:
        sources, mark = self._sources, f"tk-{secrets.token_hex(8)}"
        done = await sources.run(sources.inspector.inspect(job_id, mark))
        job = sources.inspector.parse(done, job_id, mark).job
        if job is None:
            raise SchedulerError(
                f"{sources.cluster} has no record of job {job_id}", hint=f"tk why {job_id}"
            )
        self._job = job
        return job

    async def _ask_on(self, job_id: str) -> None:
        """Ask the scheduler again once a minute: the job may have ended."""
        while True:
            await asyncio.sleep(_ASK_AGAIN_S)
            try:
                await self._record(job_id)
            except TunnelkitError:
                continue  # the nodes say what they know meanwhile
            self._news.set()

    def _frame(self, watches: list[NodeWatch]) -> TopInfo:
        job, now_s = self._job, time.time()
        assert job is not None
        look = Look(job, tuple(one.newest for one in watches if one.newest is not None))
        rows, gpus = process_rows(look), gpu_rows(look)
        self._history.add(now_s, rows, gpus)
        keys = [one["key"] for one in rows] + [one["key"] for one in gpus]
        ends_s = (job.start_s or 0.0) + (job.time_limit_s or 0)
        known = job.start_s is not None and job.time_limit_s is not None
        return {
            "job_id": job.job_id,
            "time_s": now_s,
            "state": job.native_state,
            "remaining_s": max(0.0, ends_s - now_s) if known else None,
            "sampled_s": max((one.seconds for one in look.windows), default=0.0),
            "nodes": [_node(look, one) for one in watches],
            "rows": rows,
            "gpus": gpus,
            "threads": thread_rows(look),
            "verdict": _verdict(job, watches, now_s),
            "notes": self._notes,
            "history": self._history.info(keys),
        }


def _node(look: Look, watch: NodeWatch) -> NodeRow:
    if watch.newest is None:
        return silent_node(watch.node, watch.problem or "no answer yet")
    return node_row(look, watch.newest)


def _verdict(job: JobView, watches: list[NodeWatch], now_s: float) -> VerdictInfo | None:
    """Return what ten seconds of all nodes that answer show; None before they are over."""
    answering = [one for one in watches if not one.problem]
    windows = tuple(one.whole for one in answering if one.whole is not None)
    if not windows or len(windows) < len(answering):
        return None
    return verdict_info(judge_running(job, windows, now_s)[0])
