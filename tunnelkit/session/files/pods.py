"""The pods of a session, each of which has a disk of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tunnelkit.link.base import Link
from tunnelkit.model import MirrorSpec
from tunnelkit.session.agent.node_agents import PeerAgents
from tunnelkit.session.files.mirror_json import Tell

if TYPE_CHECKING:
    from tunnelkit.mirror.watch.shared_source import MakeWatch


@dataclass(frozen=True, slots=True)
class Pods:
    """The session's pods. first, instance: return the first one's name, and which of that it is.

    others: returns the names of the others, in order, and which instance of its name each is.
    look: has the cluster asked soon which pods there are."""

    agents: PeerAgents
    first: Callable[[], str]
    instance: Callable[[], str]
    others: Callable[[], Mapping[str, str]]
    look: Callable[[], None]


@dataclass(frozen=True, slots=True)
class PodWays:
    """The common part of all pods' mirrors; see `Mirror`.

    prepared, changed, tell: see PodHost. warn: takes a warning for the user.
    """

    link: Link
    specs: Sequence[MirrorSpec]
    state_dir: Path
    take_over: bool
    prepared: Callable[[], Awaitable[None]]
    changed: Callable[[], None]
    tell: Tell
    warn: Callable[[str], None]
    watch: MakeWatch
