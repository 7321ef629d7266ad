"""A pull beside a job that removes files: what is asked for in each round, and how many there are.

The login host's scripts run here."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from tests.support.shell_host import ShellHost
from tunnelkit.errors import MirrorError
from tunnelkit.mirror.pull_rounds import Fetch
from tunnelkit.mirror.transfer.base import FetchRule, TransferResult


class Job:
    """A transfer beside which files go; `step` is called with each round's paths."""

    def __init__(self, step: Callable[[set[str]], TransferResult]) -> None:
        self.rounds: list[set[str]] = []
        self._step = step

    async def fetch(self, paths: Collection[str], root: str, **more: Any) -> TransferResult:
        self.rounds.append(set(paths))
        return self._step(set(paths))


async def fetched(root: Path, job: Job, names: Collection[str]) -> tuple[set[str], set[str]]:
    fetch = Fetch(ShellHost(), job, str(root))  # type: ignore[arg-type]
    return await fetch.those_there(
        names, dict.fromkeys(names, 1), FetchRule(newer_stays=True), lambda data: None
    )


async def test_what_came_or_stays_here_is_not_asked_for_again(tmp_path: Path) -> None:
    names = {"came", "kept", "gone", "slow"}
    for name in names - {"gone"}:
        (tmp_path / name).write_text("x")

    def step(paths: set[str]) -> TransferResult:
        if "gone" in paths:
            return TransferResult(23, b"", "?", frozenset({"came"}), kept=frozenset({"kept"}))
        return TransferResult(0, b"", "", frozenset(paths))

    job = Job(step)
    assert await fetched(tmp_path, job, names) == ({"came", "slow"}, {"gone"})
    assert job.rounds == [names, {"slow"}]


async def test_a_job_that_never_stops_to_remove_files_ends_the_pull(tmp_path: Path) -> None:
    names = {f"{n:02}" for n in range(30)}
    for name in names:
        (tmp_path / name).write_text("x")

    def step(paths: set[str]) -> TransferResult:
        (tmp_path / min(paths)).unlink()
        return TransferResult(23, b"", "went", frozenset())

    job = Job(step)
    with pytest.raises(MirrorError, match="not all files came") as caught:
        await fetched(tmp_path, job, names)
    assert caught.value.transient
    assert len(job.rounds) == 5
