"""The README for PyPI, which has no other files to link to.

    python scripts/docslib/pypi.py README.md

Prints it with each relative link as text and the file's path in the source archive.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

_LINK = re.compile(r"\[([^\]]+)\]\((?!https?:)([^)\s]+)\)")
_NOTE = (
    "Paths in parentheses are files of the source archive, which is among this release's files.\n"
)


def for_pypi(readme: str) -> str:
    """Return `readme` without relative links."""

    def plain(link: re.Match[str]) -> str:
        path = link[2].partition("#")[0]
        return f"`{path}`" if link[1].strip("`") == path else f"{link[1]} (`{path}`)"

    title, _, rest = readme.partition("\n\n")
    return f"{title}\n\n{_LINK.sub(plain, rest)}\n{_NOTE}"


if __name__ == "__main__":
    sys.stdout.write(for_pypi(Path(sys.argv[1]).read_text(encoding="utf-8")))
