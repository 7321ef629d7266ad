"""The ranks among the Pythons of an allocation: one process for each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tunnelkit.messages.agent_calls import PythonInfo

#: Of ranks; a node may say anything.
_MOST_RANKS = 1_000_000


def rank_processes(found: Iterable[PythonInfo]) -> list[PythonInfo]:
    """Return the main process of each rank, by rank and pid.

    What starts ranks is none, nor is what a rank has started (a worker inherits its environment).
    A rank has several if two programs run.
    """
    ranked = [one for one in found if is_rank(one)]
    known = {(one["node"], one["pid"]): one["rank"] for one in ranked}
    main = [
        one
        for one in ranked
        if all(known.get((one["node"], pid)) != one["rank"] for pid in one["ancestors"])
    ]
    return sorted(main, key=lambda one: (one["rank"] or 0, one["node"], one["pid"]))


def is_rank(process: PythonInfo) -> bool:
    """Tell whether a process is a rank, or was started by one."""
    rank = process["rank"]
    return rank is not None and 0 <= rank < _MOST_RANKS and not process["launcher"]


def newest_run(ranks: Sequence[PythonInfo]) -> list[PythonInfo]:
    """Return the ranks of the command that was started last: `tk run` has one tag for all nodes."""
    newest = max((_order(one["run"]) for one in ranks), default=(0, ""))
    return [one for one in ranks if _order(one["run"]) == newest]


def _order(run: str) -> tuple[int, str]:
    """An agent's tags count up."""
    return len(run), run
