"""Events in a loop's log, as the agent writes them.

Each has a `time` (the node's clock), and but for `skipped` the `generation` that it is about. The
laptop reads them field by field: another version's have other fields.
"""

from __future__ import annotations

from typing import Literal, TypedDict

from tunnelkit.messages.agent_calls import RunEndInfo


class Starting(TypedDict):
    """A generation has its turn. port: where its debuggees dial in."""

    event: Literal["starting"]
    pid: int
    port: int


class Armed(TypedDict):
    """A debuggee has dialled in and waits for an editor."""

    event: Literal["armed"]
    pid: int


class Attached(TypedDict):
    """An editor has the program."""

    event: Literal["attached"]
    client: str


class Waiting(TypedDict):
    """The program ended early: the next start comes after a pause."""

    event: Literal["waiting"]
    delay_s: float


class Plain(TypedDict):
    """pending: an attached process is in native code. stopped: the loop has ended."""

    event: Literal["pending", "stopped"]


class Failed(TypedDict):
    """A process can't be attached to."""

    event: Literal["failed"]
    cause: str
    hint: str


class Kept(TypedDict):
    """`--post-mortem` keeps a program that died (debuggee/postmortem.py)."""

    event: Literal["kept"]
    error: str
    where: str


class Ended(RunEndInfo):
    """A run has ended."""

    event: Literal["ended"]


class Refused(TypedDict):
    """stale: what the fork server imported has changed. no-standby, no-relay: there is none."""

    event: Literal["stale", "no-standby", "no-relay"]
    why: str


class NodeLost(TypedDict):
    """The relay on a node is gone."""

    event: Literal["node-lost"]
    node: str
    why: str


class Memory(TypedDict, total=False):
    """The memory of a process. share_bytes: its part where pages are shared."""

    rss_bytes: int
    share_bytes: int


class Standby(Memory):
    """The next debuggee stands by."""

    event: Literal["standby"]
    pid: int


class RankSeen(TypedDict):
    """A rank has dialled in. wanted: how many will; 0: unknown."""

    event: Literal["rank"]
    rank: int
    wanted: int
    node: str
    pid: int


class Preloading(TypedDict):
    """A fork server imports modules."""

    event: Literal["preloading"]
    modules: list[str]


class Imports(TypedDict):
    """The imports of a fork server: seconds, by module."""

    imports: dict[str, float]
    rss_bytes: int


class ForkServerReady(Imports):
    """A fork server has imported its modules."""

    event: Literal["fork-server"]
    pid: int | None


class Imported(TypedDict):
    """A module of the program took long to import (debuggee/import_timer.py)."""

    event: Literal["imported"]
    module: str
    duration_s: float


class Skipped(TypedDict):
    """Records that a slow reader has missed."""

    event: Literal["skipped"]
    records: int


#: Those that are the state of a loop from then on.
LoopState = Starting | Armed | Attached | Waiting | Plain | Failed | Kept
LoopEvent = (
    LoopState
    | Ended
    | Refused
    | NodeLost
    | Standby
    | RankSeen
    | Preloading
    | ForkServerReady
    | Imported
    | Skipped
)
