"""Pictures of a terminal, as SVG, from what commands printed."""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich.console import Console
from rich.text import Text

_WIDTH = 92


def terminal(text: str, file: Path) -> None:
    """Write a picture of `text`; lines that begin with `$ ` are what the user types."""
    console = Console(record=True, width=_WIDTH, file=io.StringIO(), force_terminal=True)
    for line in text.splitlines():
        shown = Text(line, overflow="fold")
        if line.startswith("$ "):
            shown.stylize("bold")
            shown.stylize("green", 0, 1)
        console.print(shown, highlight=False)
    svg = console.export_svg(title="terminal", unique_id=file.stem)
    # A picture in a page fetches nothing, and the site must not name other hosts.
    svg = re.sub(r"@font-face \{.*?\}\n?", "", svg, flags=re.DOTALL)
    svg = re.sub(r"Fira Code", "DejaVu Sans Mono, Menlo, Consolas", svg)
    file.write_text("\n".join(line.rstrip() for line in svg.splitlines()) + "\n")
