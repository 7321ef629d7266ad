"""The lines about ranks that were seen from outside: the missing stacks, and the next step."""

from __future__ import annotations

from collections.abc import Sequence

from tunnelkit.debug.ranks.fold import fold_ranks
from tunnelkit.debug.ranks.sample import RankState
from tunnelkit.debug.ranks_view.text_width import short_ranks, wrapped
from tunnelkit.debug.ranks_view.view import RanksView
from tunnelkit.text_format import shown


def outside_lines(view: RanksView, columns: int) -> list[str]:
    """Say which stacks are missing and why, which are py-spy's, and what to do."""
    lines: list[str] = []
    without = [one for one in view.samples if one.state is RankState.UNDEBUGGED]
    bare = [one.rank for one in without if not one.frames]
    native = [
        one.rank
        for one in view.samples
        if one.frames and one.state in (RankState.UNDEBUGGED, RankState.SILENT)
    ]
    if native:
        lines += wrapped(f"the stacks of {_ranks(native, columns)} are py-spy's", columns)
    for note in view.notes:
        lines += wrapped(shown(note), columns)
    if bare:
        missing = "run without a debugger: no Python stacks of them"
        if len(bare) == 1:
            missing = "runs without a debugger: no Python stack of it"
        lines += wrapped(f"{_ranks(bare, columns)} {missing}", columns)
        selected = fold_ranks(bare)
        attach = f"tk attach {selected}" if len(selected) <= columns // 4 else "tk attach SEL"
        if not view.native:
            lines.append("   tk ranks --native   their stacks, by py-spy")
        lines.append(f"   {attach}   bring the debugger in")
    elif not view.native and any(one.state is RankState.SILENT for one in view.samples):
        lines.append("   tk ranks --native   the stacks of those without an answer, by py-spy")
    return lines


def _ranks(ranks: Sequence[int], columns: int) -> str:
    noun = "rank" if len(ranks) == 1 else "ranks"
    return f"{noun} {short_ranks(fold_ranks(ranks), columns // 2)}"
