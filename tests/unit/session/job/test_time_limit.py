"""Warnings of the time limit: each once, whatever comes between."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tunnelkit.session.job.time_limit import TimeLimit, in_words


class Rig:
    """A limit on a clock of the test's own."""

    def __init__(self, memory: Path) -> None:
        self.now = 0.0
        self.memory = memory
        self.warned: list[int] = []
        self.limit = self.another()

    def another(self) -> TimeLimit:
        """As the next session makes it."""
        return TimeLimit(self.memory, self.warned.append, clock=lambda: self.now)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path / "time-limit")


async def test_at_ten_and_at_two_minutes_once_each(rig: Rig) -> None:
    rig.limit.begins("7", 3600)
    for left_s in (3600, 601, 599, 590, 400, 121, 119, 90, 20):
        rig.now = 3600 - left_s
        rig.limit.tells(left_s)
    assert rig.warned == [599, 119]
    assert rig.limit.warned and rig.limit.left_s == 20
    rig.limit.close()


async def test_it_needs_no_word_of_the_scheduler(tmp_path: Path) -> None:
    warned = asyncio.Event()
    limit = TimeLimit(tmp_path / "x", lambda left_s: warned.set())
    limit.begins("7", 3600)
    limit.tells(600)
    assert warned.is_set()
    warned.clear()
    # The next stage has a timer; here it is as good as due.
    limit.tells(121)
    async with asyncio.timeout(30):
        await warned.wait()
    limit.close()


async def test_another_session_does_not_say_it_again(rig: Rig) -> None:
    rig.limit.begins("7", 3600)
    rig.limit.tells(500)
    rig.limit.close()
    successor = rig.another()
    successor.begins("7", 450)
    assert rig.warned == [500]
    successor.tells(100)
    assert rig.warned == [500, 100]
    other = rig.another()
    other.begins("8", 3600)
    other.tells(500)
    assert rig.warned == [500, 100, 500]
    successor.close()
    other.close()


async def test_what_was_asked_for_is_no_news(rig: Rig) -> None:
    rig.limit.begins("7", 300)
    assert rig.warned == []
    rig.limit.tells(100)
    assert rig.warned == [100]
    rig.limit.close()


async def test_a_job_that_runs_again_has_all_of_its_time(rig: Rig) -> None:
    rig.limit.begins("7", 3600)
    rig.limit.tells(100)
    rig.limit.runs_again()
    assert rig.limit.left_s is None and not rig.limit.warned
    rig.limit.begins("7", 3600)
    rig.limit.tells(580)
    assert rig.warned == [100, 580]
    rig.limit.close()


async def test_a_limit_that_was_lifted_is_forgotten(rig: Rig) -> None:
    rig.limit.begins("7", 7200)
    rig.limit.tells(None)
    rig.now = 6700
    assert rig.limit.left_s is None and rig.warned == []


async def test_the_jobs_own_warning_counts_where_the_scheduler_leaves_it_more(rig: Rig) -> None:
    rig.limit.begins("7", 7200)
    rig.limit.job_tells(7150)
    assert rig.limit.left_s == 7200, "it may be early by a minute"
    rig.limit.job_tells(540)
    assert rig.limit.left_s == 540 and rig.warned == [540]
    rig.limit.close()


async def test_an_unlimited_job_is_not_warned_about(rig: Rig) -> None:
    rig.limit.begins("7", None)
    rig.limit.tells(None)
    assert rig.limit.left_s is None and rig.warned == []


@pytest.mark.parametrize(
    ("left_s", "words"), [(599, "10 minutes"), (119, "2 minutes"), (60, "1 minute,"), (20, "20 s")]
)
def test_in_words(left_s: int, words: str) -> None:
    assert words in in_words(left_s)
