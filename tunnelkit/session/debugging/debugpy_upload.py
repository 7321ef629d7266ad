"""Upload of the laptop's debugpy for a Python on the cluster that has none.

Nothing has to be installed there. Only the pure Python part is sent (about 1 MB,
once per version); pydevd then traces without its compiled helpers, somewhat
slower below Python 3.12.
"""

from __future__ import annotations

import asyncio
import io
import tarfile
from pathlib import Path

from tunnelkit.errors import AllocationError
from tunnelkit.link.base import Link

_SENT = {".py", ".txt", ".md", ".in"}
#: $1: its directory. Unpacked beside it and renamed, so that a partial one is never used.
_PROBE = '[ ! -d "$1" ] || echo have; echo done'
_UNPACK = r"""
set -e
d=$1
umask 077
mkdir -p "$d.$$"
tar -xzf - -C "$d.$$"
mv -T "$d.$$" "$d" 2>/dev/null || rm -rf "$d.$$"
"""


async def upload_debugpy(link: Link, base: str, node: str | None = None) -> str:
    """Upload debugpy into tk's directory `base` on the cluster, once per version.

    node: the node that has that directory; None: the login host has it.
    Returns the directory for PYTHONPATH. Raises AllocationError."""
    import debugpy

    place = f"{base}/debugpy-{debugpy.__version__}"
    found = await link.run(["sh", "-c", _PROBE, "sh", place], node=node)
    lines = found.text.splitlines()
    if "done" not in lines:
        raise AllocationError(
            f"can't look for debugpy on {link.name}",
            cause=found.error_text or None,
            hint="`tk doctor` checks tk's directory there",
        )
    if "have" not in lines:
        data = await asyncio.to_thread(_pack, Path(debugpy.__file__).parent)
        done = await link.run(
            ["sh", "-c", _UNPACK, "sh", place], node=node, stdin=data, timeout_s=120.0
        )
        if done.exit_code != 0:
            raise AllocationError(
                f"can't store debugpy in {base} on {link.name}",
                cause=done.error_text or None,
                hint="is its file system full? or install debugpy there: pip install debugpy",
            )
    return place


def _pack(package: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=6) as archive:
        for path in sorted(package.rglob("*")):
            # attach_*.so sets the trace function of threads that run already; it knows no ABI.
            wanted = path.suffix in _SENT or (path.suffix == ".so" and "attach" in path.name)
            if wanted and "__pycache__" not in path.parts and path.is_file():
                archive.add(path, Path("debugpy") / path.relative_to(package), recursive=False)
    return buffer.getvalue()
