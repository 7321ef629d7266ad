"""A debug loop as `tk status --json` shows it."""

from __future__ import annotations

from typing import Any, TypedDict


class RankStatus(TypedDict):
    """One rank that has dialled in. port: its own port for editors; None if it has none."""

    rank: int | None
    node: str
    pid: int
    port: int | None
    editor: str | None
    over: bool


class LoopStatus(TypedDict):
    """One debug loop.

    generation: number of the current run. standby: the debuggee that stands by, as the agent
    reports it (pid, rss_bytes, share_bytes). kept: where `--post-mortem` holds a program that
    died (error, where). ranks: None if the loop has no ranks. last_end: the end of the last run.
    """

    id: int
    command: str | list[str] | None
    debug: bool
    port: int
    state: str
    generation: int
    pid: int | None
    editor: str | None
    standby: dict[str, Any] | None
    kept: dict[str, Any] | None
    ranks: list[RankStatus] | None
    last_end: dict[str, Any]
