"""The words of `tk up` about a waiting job; no failure of theirs costs the way up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast

from tests.unit.diagnosis.waiting.large_cluster import MARK, answer
from tunnelkit.errors import ConnectionFailed
from tunnelkit.model import Completed, JobState, JobStatus
from tunnelkit.scheduler.base import Command
from tunnelkit.scheduler.slurm.adapter import Slurm
from tunnelkit.session.allocation.manager import AllocationManager
from tunnelkit.session.runtime.background_tasks import BackgroundTasks
from tunnelkit.session.why.waiting_words import WaitingWords

STATUS = JobStatus("900000", JobState.PENDING, "PENDING", explanation="jobs are in front")


@dataclass
class Asked:
    """A session's cluster that answers each question by `reply`, and what was shown and said."""

    reply: Callable[[int, str], Completed]
    questions: int = 0
    shown: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    answered: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, command: Command) -> Completed:
        self.questions += 1
        mark = next(word for word in command.argv if word.startswith("tk-") and len(word) > 10)
        try:
            return self.reply(self.questions, mark)
        finally:
            if self.questions == 3:
                self.answered.set()

    def words(self, tasks: BackgroundTasks) -> WaitingWords:
        job = SimpleNamespace(scheduler=Slurm())
        settings = SimpleNamespace(cluster=SimpleNamespace(directory="", python="python3"))
        setup = SimpleNamespace(link=SimpleNamespace(name="login"), settings=settings)
        cluster = SimpleNamespace(job=job, setup=setup, run=self.run)
        return WaitingWords(
            cast("AllocationManager", cluster),
            tasks,
            self.shown.append,
            self.said.append,
            first_s=0,
            again_s=0,
        )


async def _wait(asked: Asked) -> None:
    tasks = BackgroundTasks()
    words = asked.words(tasks)
    words.is_pending(STATUS)
    assert asked.shown == ["job 900000: jobs are in front"]  # at once, without an answer
    async with asyncio.timeout(30):
        await asked.answered.wait()
    await words.end()
    assert words.status is None
    questions = asked.questions
    await asyncio.sleep(0)
    assert asked.questions == questions


async def test_the_verdict_is_shown_each_time_and_said_once() -> None:
    text = answer(40, 10, 10)
    asked = Asked(lambda at, mark: Completed(0, text.replace(MARK, mark).encode(), b""))
    await _wait(asked)
    assert len(asked.said) == 1
    assert asked.said[0].startswith("job 900000 waits 2 h 10 min: ")
    assert asked.shown[-1].startswith("job 900000: jobs are in front; it waits 2 h 10 min: ")


async def test_no_failure_is_shown_and_the_next_question_comes() -> None:
    def fails(at: int, mark: str) -> Completed:
        if at == 1:
            raise ConnectionFailed("the connection is lost")
        if at == 2:
            raise RuntimeError("a defect")
        return Completed(1, b"nonsense", b"")

    asked = Asked(fails)
    await _wait(asked)
    assert asked.said == [] and len(asked.shown) == 1
