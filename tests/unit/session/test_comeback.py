"""A session whose nodes are lost one after the other: it goes on, but not for ever."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tunnelkit.errors import AllocationError, ConnectionFailed
from tunnelkit.model import LostNode
from tunnelkit.session import comeback
from tunnelkit.session.comeback import Comeback
from tunnelkit.session.files import file_services
from tunnelkit.session.files.file_services import SessionFiles


class Losses:
    """All parts of a session that lose each node at once, as an API server can have it."""

    def __init__(self, reached: Callable[[int], bool]) -> None:
        self.said: list[str] = []
        self.count = 0
        self._reached = reached
        part: Any = SimpleNamespace(
            close=self._does, take=self._nothing, put_back=self._nothing, forget=self._does,
            node_lost=self._does, start_patiently=self._does, wait_replaced=self._does,
            fate=self._fate, node_changed=lambda: None,
            runs_again=lambda: None, become=lambda *_: None,
        )  # fmt: skip
        self.comeback = Comeback(
            part, part, part, part, part, part, part, part,
            say=self.said.append, reach=self._reach, wait_up=self._does,
        )  # fmt: skip

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


class CutFiles(SessionFiles):
    """The files of a session, whose link is cut in each of the first copies."""

    def __init__(self, cuts: int) -> None:
        self.mirrors, self.node_changed = None, lambda: None
        self._only_on_nodes = False
        self.left = cuts

    async def start(self) -> None:
        if self.left:
            self.left -= 1
            raise ConnectionFailed("the link to the agent broke", transient=True)


@pytest.mark.parametrize("cuts", [1, 4])
async def test_a_first_copy_that_is_cut_begins_again(
    monkeypatch: pytest.MonkeyPatch, cuts: int
) -> None:
    monkeypatch.setattr(file_services, "_NOTICE_S", 0.0)
    losses = Losses(lambda count: True)
    files = losses.comeback.files = CutFiles(cuts)
    await losses.go_on()
    assert not files.left and losses.comeback.count == 1 and len(losses.said) == 1


async def test_one_that_is_cut_each_time_ends_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_services, "_NOTICE_S", 0.0)
    losses = Losses(lambda count: True)
    losses.comeback.files = CutFiles(100)

    async def same(*, gone: bool) -> Any:
        return SimpleNamespace(gone=None)

    monkeypatch.setattr(losses.comeback.cluster, "fate", same)
    with pytest.raises(ConnectionFailed, match="the link to the agent broke"):
        await losses.go_on()
