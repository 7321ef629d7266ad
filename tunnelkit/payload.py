"""The agent as one file: a zip built from agent/, debuggee/, mux/ and wire/, named by its digest.

Built the same byte for byte from the same sources (fixed times, order and
modes), so a node that has the digest needs nothing sent.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

ROOMS = ("wire", "mux", "debuggee", "agent")
#: Held by a test: what every first use of a cluster has to send.
BUDGET_BYTES = 150 * 1024

#: With its byte code, where agent/bytecode.py has put that beside it.
_MAIN = b"""import os
import sys
compiled = f"{sys.path[0][:-4]}-{sys.implementation.cache_tag}.zip"
if os.path.exists(compiled):
    sys.path[0] = compiled
from tunnelkit.agent.main import main
sys.exit(main(sys.argv[1:]))
"""
_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Payload:
    """The zip's bytes and the sha256 that names it."""

    data: bytes
    digest: str

    @property
    def file_name(self) -> str:
        """Name of the file on the cluster."""
        return f"agent-{self.digest[:32]}.zip"


@lru_cache(maxsize=1)
def build() -> Payload:
    """Build the payload from the installed package's sources."""
    package = Path(__file__).parent
    files = {"__main__.py": _MAIN, "tunnelkit/__init__.py": _read(package / "__init__.py")}
    for room in ROOMS:
        for path in sorted((package / room).rglob("*.py")):
            files[f"tunnelkit/{path.relative_to(package).as_posix()}"] = _read(path)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(files):
            info = zipfile.ZipInfo(name, _EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            info.create_system = 3
            archive.writestr(info, files[name])
    data = buffer.getvalue()
    return Payload(data, hashlib.sha256(data).hexdigest())


def _read(path: Path) -> bytes:
    return path.read_bytes().replace(b"\r\n", b"\n")
