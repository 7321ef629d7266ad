"""The proofs of former sessions, once an agent can't serve the directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tunnelkit.errors import ConnectionFailed
from tunnelkit.mirror.agent import channel_provider
from tunnelkit.mirror.agent.channel import MirrorChannel, NotThere
from tunnelkit.mirror.agent.channel_provider import ChannelProvider
from tunnelkit.mirror.context import SyncContext
from tunnelkit.mirror.record.manifest import Manifest, ManifestEntry
from tunnelkit.mirror.tree.scanner import FILE, Entry

_PROVEN = ManifestEntry(Entry(FILE, 0o644, 5, 1, 1, 7), "digest", sent=True, proven=True)
_LOST = ConnectionFailed("the agent does not answer", transient=True)


class Agents:
    """A mirror whose current agent opens no channel, for the reason that `error` says."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.error: Exception | None = NotThere("the agent can't use /root")
        remote: Any = SimpleNamespace(destination=lambda: "host")
        ground = SyncContext(remote, "/here", "/there", manifest)
        self.now = self.another()
        self.provider = ChannelProvider(ground, lambda: self.now)

    def another(self, *, is_node: bool = True) -> Any:
        self.now = SimpleNamespace(is_node=is_node, is_up=True)
        return self.now

    async def open(self, agent: Any, *_: object, **__: object) -> Any:
        """Stands in for MirrorChannel.open."""
        if self.error is not None:
            raise self.error

        async def close() -> None: ...

        return SimpleNamespace(
            agent=agent, instance="one", is_usable=True, is_owed=False, close=close
        )

    async def are_proven(self) -> bool:
        """The proofs after the next pass; all are proven again then."""
        await self.provider.live()
        kept = not self.manifest.unproven()
        self.manifest.prove(self.manifest.unproven())
        return kept


@pytest.fixture
def agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agents]:
    manifest = Manifest(tmp_path / "m.sqlite")
    manifest.open()
    manifest.put({"a": _PROVEN})
    made = Agents(manifest)
    monkeypatch.setattr(MirrorChannel, "open", made.open)
    monkeypatch.setattr(channel_provider, "_ASK_AGAIN_S", 0.0)
    yield made
    manifest.close()


async def test_each_node_that_refuses_the_root_proves_anew_once(agents: Agents) -> None:
    assert not await agents.are_proven()
    assert await agents.are_proven()
    agents.another()
    assert not await agents.are_proven()
    assert await agents.are_proven()


async def test_so_does_one_that_hangs_but_not_one_whose_link_is_lost(agents: Agents) -> None:
    agents.error = _LOST
    assert not await agents.are_proven()
    agents.another().is_up = False
    assert await agents.are_proven()


async def test_one_that_loses_the_root_proves_anew_each_time(agents: Agents) -> None:
    agents.error = None
    assert not await agents.are_proven()  # another instance than the one of the record
    assert await agents.are_proven()
    agents.error = NotThere("the agent can't use /root")
    await agents.provider.close()
    assert not await agents.are_proven()
    agents.error = None
    assert not await agents.are_proven()
    await agents.provider.close()
    agents.error = _LOST
    assert not await agents.are_proven()


async def test_the_login_host_s_agent_takes_no_proof_away(agents: Agents) -> None:
    agents.another(is_node=False)
    assert await agents.are_proven()
