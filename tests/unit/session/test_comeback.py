"""A session whose nodes are lost one after the other: it goes on, but not for ever."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tunnelkit.errors import AllocationError
from tunnelkit.model import LostNode
from tunnelkit.session import comeback
from tunnelkit.session.comeback import Comeback


class Losses:
    """All parts of a session that lose each node at once, as an API server can have it."""

    def __init__(self, reached: Callable[[int], bool]) -> None:
        self.said: list[str] = []
        self.count = 0
        self._reached = reached
        part: Any = SimpleNamespace(
            close=self._does, take=self._nothing, put_back=self._nothing, forget=self._does,
            node_lost=self._does, start=self._does, wait_replaced=self._does, fate=self._fate,
            node_changed=lambda: None, runs_again=lambda: None, become=lambda *_: None,
        )  # fmt: skip
        self.comeback = Comeback(
            part, part, part, part, part, part, part, part, say=self.said.append, reach=self._reach
        )

    async def go_on(self) -> None:
        fate: Any = SimpleNamespace(gone=self._next())
        job: Any = SimpleNamespace(job_id="sts/w")
        await self.comeback.go_on(job, fate, "the connection ended")

    def _next(self) -> LostNode:
        self.count += 1
        return LostNode(f"w-{self.count}", str(self.count), "Evicted")

    async def _does(self, *_: object, **__: object) -> None: ...

    async def _nothing(self, *_: object) -> list[str]:
        return []

    async def _fate(self, *, gone: bool) -> Any:
        return SimpleNamespace(gone=self._next())

    async def _reach(self, _: object) -> None:
        if not self._reached(self.count):
            raise AllocationError("no agent there")


async def test_a_server_that_names_another_pod_each_time_is_left_after_six() -> None:
    losses = Losses(lambda count: False)
    with pytest.raises(AllocationError, match=r"w-6 is the last of 6 that were lost") as raised:
        await losses.go_on()
    assert raised.value.hint == "once its owner keeps one running: tk up"
    assert len(losses.said) == 6 and not losses.comeback.busy


async def test_losses_that_are_far_apart_are_not_counted_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    losses, now = Losses(lambda count: True), 1000.0
    monkeypatch.setattr(comeback, "time", SimpleNamespace(monotonic=lambda: now))
    for _ in range(20):
        now += 121.0
        await losses.go_on()
    assert losses.comeback.count == 20
    now += 600.0
    for _ in range(5):
        now += 1.0
        await losses.go_on()
    with pytest.raises(AllocationError, match="lost in a short time"):
        await losses.go_on()
