"""The pods of a session, each of which has a disk of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tunnelkit.session.agent.node_agents import PeerAgents


@dataclass(frozen=True, slots=True)
class Pods:
    """The session's pods. first: returns the first one's name.

    others: returns the names of the others, in order, and which instance of its name each is.
    look: has the cluster asked soon which pods there are."""

    agents: PeerAgents
    first: Callable[[], str]
    others: Callable[[], Mapping[str, str]]
    look: Callable[[], None]
