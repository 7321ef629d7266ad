"""The sections of docs/why.md about verdicts, made of the registry of codes.

python -m scripts.docslib.verdicts: write them.
"""

from __future__ import annotations

import re
from pathlib import Path

from tunnelkit.diagnosis.codes.code import Code
from tunnelkit.diagnosis.codes.registry import CODES
from tunnelkit.diagnosis.verdict import Stage

PAGE = Path(__file__).parents[2] / "docs" / "why.md"
BEGIN = "<!-- codes: written by scripts/docslib/verdicts.py -->\n"
END = "<!-- end of codes -->\n"
_TITLES = {
    Stage.WAITING: "Jobs that wait",
    Stage.RUNNING: "Jobs that run",
    Stage.ENDED: "Jobs that have ended",
}


def sections() -> str:
    """Return a section for each code, by stage in the order of the registry."""
    parts = []
    for stage, title in _TITLES.items():
        parts.append(f"## {title}\n")
        parts += [_section(one) for one in CODES.values() if one.stage is stage]
    return "\n".join(parts)


def _section(code: Code) -> str:
    lines = [
        f"### {code.name}\n",
        f"{_text(code.meaning)}\n",
        f"- Who can change it: {code.actor.value}",
        f"- Found by: {_text(code.found_by)}",
        f"- What to do: {_text(code.remedy)}",
    ]
    if code.fatal:
        lines.append("- `tk why --check` exits with 14")
    return "\n".join(lines) + "\n"


def _text(text: str) -> str:
    """Return text for Markdown, without markup of its own but code."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(
        part if part.startswith("`") else re.sub(r"([<>*_\[\]\\|])", r"\\\1", part)
        for part in parts
    )


def with_sections(page: str) -> str:
    """Return the page with the sections as they are now."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{sections()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(with_sections(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
