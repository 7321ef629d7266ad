"""The ranks as a table of plain text, a line each."""

from __future__ import annotations

from tunnelkit.debug.ranks.frames import Project
from tunnelkit.debug.ranks_view.describe import absent_text, place_text, state_text
from tunnelkit.debug.ranks_view.text_width import cut, padded, width
from tunnelkit.debug.ranks_view.view import RanksView
from tunnelkit.text_format import shown

_GAP = "  "
_LONGEST_NODE = 20


def rank_lines(view: RanksView, columns: int = 80) -> list[str]:
    """Lines for a terminal of `columns`, without escape sequences, none of them wider."""
    project = Project(view.roots)
    classes = {rank: one for one in view.classes for rank in one.ranks}
    rows = [("rank", "node", "pid", "class", "where", "state")]
    for sample in sorted(view.samples, key=lambda one: one.rank):
        found = classes[sample.rank]
        where = place_text(project, found.form, columns)
        if not found.form and sample.command:
            # The interpreter by name: its path would hide what it runs.
            python, space, words = sample.command.partition(" ")
            where = cut(shown(f"{python.rpartition('/')[2]}{space}{words}"), columns)
        state = state_text(found, view.still_s.get(sample.rank))
        node = cut(shown(sample.node), _LONGEST_NODE)
        rows.append((str(sample.rank), node, str(sample.pid), found.name, where, state))
    widths = [max(width(row[at]) for row in rows) for at in range(len(rows[0]))]
    room = columns - sum(widths[:4]) - len(_GAP) * 5
    widths[4] = max(5, min(widths[4], room - min(widths[5], max(12, room // 2))))
    lines = [_line(row, widths) for row in rows]
    if view.absent:
        lines.append(absent_text(view.absent, columns // 2))
    return [cut(line, columns).rstrip() for line in lines]


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    cells = [padded(cut(text, columns), columns) for text, columns in zip(row, widths, strict=True)]
    # Numbers stand below one another.
    cells[0], cells[2] = row[0].rjust(widths[0]), row[2].rjust(widths[2])
    return _GAP.join(cells)
