"""The check of a script's needs as one file: a zip of script_check/, sent for each check."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from tunnelkit.agent_zip import Payload, pack, stripped_files

#: Limit of the zip's size, held by a test.
BUDGET_BYTES = 12 * 1024


@lru_cache(maxsize=1)
def build() -> Payload:
    """Build the payload from the installed package's sources."""
    files = {"tunnelkit/__init__.py": b""}
    files.update(stripped_files(Path(__file__).parent, "script_check"))
    return pack(files, "script-check")
