"""The poller on a clock of its own: how often it asks, and what it never says."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import pytest

from tunnelkit.errors import ConnectionFailed, HostKeyError, SchedulerError, TunnelkitError
from tunnelkit.model import Completed, JobState, JobStatus
from tunnelkit.scheduler.base import Command
from tunnelkit.scheduler.poller import SECOND_LOOK_S, SETTLED_S, Poller
from tunnelkit.scheduler.slurm.adapter import Slurm

GONE = Completed(1, b"", b"slurm_load_jobs error: Invalid job id specified\n")


class FakeClock:
    """Time passes only when everybody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self._count += 1
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.now + seconds, self._count, future))
        await future

    async def advance(self, seconds: float) -> None:
        end = self.now + seconds
        await self._settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            self.now, _, future = heapq.heappop(self._sleepers)
            if not future.done():
                future.set_result(None)
            await self._settle()
        self.now = end

    async def _settle(self) -> None:
        for _ in range(30):
            await asyncio.sleep(0)


class Cluster:
    """Answers squeue from a table; `fail` is raised instead while it is set."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.rows: dict[str, str] = {}
        self.fail: TunnelkitError | Completed | None = None
        self.asked: list[tuple[float, tuple[str, ...]]] = []

    async def run(self, command: Command) -> Completed:
        ids = command.argv[command.argv.index("-j") + 1].split(",")
        self.asked.append((self.clock.now - 1000.0, tuple(ids)))
        if isinstance(self.fail, Completed):
            return self.fail
        if self.fail:
            raise self.fail
        known = [self.rows[job_id] for job_id in ids if job_id in self.rows]
        return Completed(0, "\n".join(known).encode(), b"") if known else GONE

    def pending(self, job_id: str, reason: str = "Resources") -> None:
        self.rows[job_id] = f"{job_id}|PENDING|{reason}||n/a|N/A|N/A|1:00:00|{job_id}|cpu|x"

    def running(self, job_id: str) -> None:
        self.rows[job_id] = f"{job_id}|RUNNING|None|n1|n1|S|E|1:00:00|{job_id}|cpu|x"

    def times(self) -> list[float]:
        return [time for time, _ in self.asked]


class Watch:
    """Collects what one watcher yields."""

    def __init__(self, poller: Poller, job_id: str) -> None:
        self.seen: list[JobStatus] = []
        self.task = asyncio.ensure_future(self._collect(poller, job_id))

    async def _collect(self, poller: Poller, job_id: str) -> None:
        async with aclosing(poller.watch(job_id)) as statuses:
            async for status in statuses:
                self.seen.append(status)

    @property
    def states(self) -> list[JobState]:
        return [status.state for status in self.seen]


@asynccontextmanager
async def watching(poller: Poller, *job_ids: str) -> AsyncIterator[list[Watch]]:
    watches = [Watch(poller, job_id) for job_id in job_ids]
    try:
        yield watches
    finally:
        for watch in watches:
            watch.task.cancel()
        await asyncio.gather(*(watch.task for watch in watches), return_exceptions=True)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def cluster(clock: FakeClock) -> Cluster:
    return Cluster(clock)


@pytest.fixture
def poller(clock: FakeClock, cluster: Cluster) -> Poller:
    return Poller(cluster.run, Slurm(), clock=clock, sleep=clock.sleep)


async def test_fast_at_first_then_thirty_seconds_apart(
    clock: FakeClock, cluster: Cluster, poller: Poller
) -> None:
    cluster.pending("1")
    async with watching(poller, "1"):
        await clock.advance(600)
    times = cluster.times()
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert gaps[:4] == [0.25, 0.5, 1, 2]
    assert all(gap >= 30 for gap in gaps[9:])
    assert len(times) < 30


async def test_a_running_job_is_settled_at_once(
    clock: FakeClock, cluster: Cluster, poller: Poller
) -> None:
    cluster.running("1")
    async with watching(poller, "1") as (watch,):
        await clock.advance(3 * SETTLED_S)
    assert cluster.times() == [0, 30, 60, 90]
    assert set(watch.states) == {JobState.RUNNING}


async def test_one_that_is_thought_to_end_is_looked_at_as_often_as_a_new_one(
    clock: FakeClock, cluster: Cluster, poller: Poller
) -> None:
    """Its agent is gone; the scheduler may hear of that a moment later."""
    cluster.running("1")
    async with watching(poller, "1"):
        await clock.advance(10)
        states = poller.watch("1", hurried=True)
        looking = asyncio.ensure_future(states.__anext__())
        await clock.advance(0)
        assert (await looking).state is JobState.RUNNING
        cluster.rows["1"] = "1|CANCELLED|None|n1|n1|S|E|0:00|1|cpu|x"
        looking = asyncio.ensure_future(states.__anext__())
        await clock.advance(1)
        assert (await looking).state is JobState.ENDED
        await states.aclose()


async def test_one_query_serves_all_watchers(
    clock: FakeClock, cluster: Cluster, poller: Poller
) -> None:
    for job_id in ("1", "2", "3"):
        cluster.running(job_id)
    async with watching(poller, "1") as (first,):
        await clock.advance(20)
        async with watching(poller, "2", "3") as (second, third):
            await clock.advance(600)
            late = [(time, ids) for time, ids in cluster.asked if time > 120]
            assert all(ids == ("1", "2", "3") for _, ids in late)
            assert len(late) <= 500 / SETTLED_S + 1
            assert all(len(watch.seen) > 15 for watch in (first, second, third))
        await clock.advance(60)
        assert cluster.asked[-1][1] == ("1",), "nobody asks for what nobody watches"


async def test_no_refusal_ends_the_watch_of_a_job_that_was_seen(
    clock: FakeClock, cluster: Cluster, poller: Poller
) -> None:
    """It may have waited for hours, and nobody knows all the words of sites' errors."""
    cluster.pending("1")
    async with watching(poller, "1") as (watch,):
        await clock.advance(600)
        cluster.fail = Completed(127, b"", b"squeue: No such file or directory")
        await clock.advance(300)
        assert watch.states[-1] is JobState.UNKNOWN and not watch.task.done()
        cluster.fail = None
        cluster.running("1")
        await clock.advance(300)
        assert watch.states[-1] is JobState.RUNNING


async def test_the_end_is_the_last_word(clock: FakeClock, cluster: Cluster, poller: Poller) -> None:
    cluster.running("1")
    async with watching(poller, "1") as (watch,):
        await clock.advance(1)
        cluster.rows["1"] = "1|TIMEOUT|TimeLimit|n1|n1|S|E|0:00|1|cpu|x"
        await clock.advance(60)
        assert watch.task.done()
    assert watch.states == [JobState.RUNNING, JobState.ENDED]
    assert watch.seen[-1].native_state == "TIMEOUT"


@pytest.mark.parametrize(
    "trouble",
    [
        ConnectionFailed("login: connection lost"),
        Completed(1, b"", b"slurm_load_jobs error: Unable to contact slurm controller\n"),
    ],
)
async def test_trouble_is_unknown_with_growing_pauses_and_never_the_end(
    clock: FakeClock, cluster: Cluster, poller: Poller, trouble: TunnelkitError | Completed
) -> None:
    cluster.running("1")
    async with watching(poller, "1") as (watch,):
        await clock.advance(1)
        cluster.fail = trouble
        await clock.advance(1000)
        times = cluster.times()[1:]
        gaps = [b - a for a, b in itertools.pairwise(times)]
        assert gaps[:5] == [2, 4, 8, 16, 32]
        assert max(gaps) == 120
        assert set(watch.states[1:]) == {JobState.UNKNOWN}
        assert watch.seen[-1].nodes == ("n1",), "what was known is still shown"
        cluster.fail = None
        await clock.advance(121)
        assert watch.states[-1] is JobState.RUNNING


async def test_a_refusal_ends_no_later_watch_of_a_job_that_was_seen(
    clock: FakeClock, cluster: Cluster, poller: Poller
) -> None:
    cluster.pending("1")
    async with watching(poller, "1"):
        await clock.advance(1)
    cluster.fail = Completed(1, b"", b"slurm_load_jobs error: words that nobody knows\n")
    async with watching(poller, "1", "2") as (seen, unseen):
        await clock.advance(5)
        assert set(seen.states) == {JobState.UNKNOWN}
        assert not seen.task.done()
        assert isinstance(unseen.task.exception(), SchedulerError)


async def test_poke_looks_at_once(clock: FakeClock, cluster: Cluster, poller: Poller) -> None:
    cluster.running("1")
    async with watching(poller, "1"):
        await clock.advance(5)
        poller.poke()
        await clock.advance(1)
    assert cluster.times() == [0, 5]


async def test_a_poke_while_a_status_is_handled_is_not_lost(
    clock: FakeClock, cluster: Cluster, poller: Poller
) -> None:
    cluster.running("1")

    async def handle() -> None:
        async with aclosing(poller.watch("1")) as statuses:
            async for _ in statuses:
                if len(cluster.asked) == 1:
                    poller.poke()

    task = asyncio.ensure_future(handle())
    await clock.advance(1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert cluster.times() == [0, 0]


async def test_a_refusal_for_good_is_raised(
    clock: FakeClock, cluster: Cluster, poller: Poller
) -> None:
    for trouble in (Completed(127, b"", b"squeue: not found"), HostKeyError("login: key changed")):
        cluster.fail = trouble
        async with watching(poller, "1") as (watch,):
            await clock.advance(5)
            assert watch.task.done()
            assert isinstance(watch.task.exception(), SchedulerError | HostKeyError)
            assert watch.seen == []


async def test_a_vanished_job_without_proof_stays_unknown(
    clock: FakeClock, cluster: Cluster, poller: Poller
) -> None:
    cluster.running("1")
    async with watching(poller, "1") as (watch,):
        await clock.advance(1)
        del cluster.rows["1"]
        await clock.advance(3600)
        assert not watch.task.done()
    assert set(watch.states[1:]) == {JobState.UNKNOWN}


async def test_a_vanished_job_ends_after_a_second_look_and_with_proof(
    clock: FakeClock, cluster: Cluster
) -> None:
    proof = False
    asked: list[float] = []

    async def confirm_end(job_id: str) -> bool:
        asked.append(clock.now - 1000)
        if not proof:
            raise ConnectionFailed("login: connection lost")
        return True

    poller = Poller(cluster.run, Slurm(), confirm_end=confirm_end, clock=clock, sleep=clock.sleep)
    cluster.running("1")
    async with watching(poller, "1") as (watch,):
        await clock.advance(1)
        del cluster.rows["1"]
        await clock.advance(SETTLED_S)
        assert asked == [], "one silence is not enough to ask"
        await clock.advance(SECOND_LOOK_S)
        assert asked[0] == SETTLED_S + SECOND_LOOK_S
        assert watch.states[-1] is JobState.UNKNOWN, "a proof that can't be had is none"
        proof = True
        await clock.advance(60)
        assert watch.task.done()
    assert watch.states[-1] is JobState.ENDED


async def test_a_job_that_comes_back_was_never_gone(clock: FakeClock, cluster: Cluster) -> None:
    async def confirm_end(job_id: str) -> bool:
        raise AssertionError("asked after a single silence")

    poller = Poller(cluster.run, Slurm(), confirm_end=confirm_end, clock=clock, sleep=clock.sleep)
    async with watching(poller, "1") as (watch,):
        await clock.advance(1)  # just submitted, and not in the table yet
        cluster.pending("1")
        await clock.advance(10)
    assert watch.states[0] is JobState.UNKNOWN
    assert watch.states[-1] is JobState.PENDING
