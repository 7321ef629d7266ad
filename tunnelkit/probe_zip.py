"""The probe as one file: a zip built from probe/, named by its digest, sent when first needed."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from tunnelkit.agent_zip import Payload, pack, stripped_files

#: Limit of the zip's size, held by a test.
BUDGET_BYTES = 40 * 1024

_MAIN = b"""import sys
from tunnelkit.probe.main import main
sys.exit(main(sys.argv[1:]))
"""


@lru_cache(maxsize=1)
def build() -> Payload:
    """Build the payload from the installed package's sources."""
    files = {"__main__.py": _MAIN, "tunnelkit/__init__.py": b""}
    files.update(stripped_files(Path(__file__).parent, "probe"))
    return pack(files, "probe")
