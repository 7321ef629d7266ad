"""What the files of the mirror are, as this node reads them."""

import asyncio
import hashlib
import os
from typing import Any, Dict, List, Optional

_CHUNK_BYTES = 1024 * 1024


async def differing(root: str, expected: Dict[str, Optional[str]]) -> List[str]:
    """Paths below `root` whose sha256 (None: absent) is not the expected one.

    Files are opened anew: that makes an NFS client ask the server (close-to-open
    consistency), so the answer is not from this node's cache.
    """
    base = os.path.expanduser(root)
    loop = asyncio.get_running_loop()
    differ = []
    for path, digest in expected.items():
        found = await loop.run_in_executor(None, _digest, os.path.join(base, path))
        if found != digest:
            differ.append(path)
    return differ


def _digest(path: str) -> Optional[str]:
    # A symlink's content is where it points; it is not followed.
    try:
        if os.path.islink(path):
            return hashlib.sha256(os.fsencode(os.readlink(path))).hexdigest()
        state = hashlib.sha256()
        with open(path, "rb") as file:
            while True:
                chunk = file.read(_CHUNK_BYTES)
                if not chunk:
                    return state.hexdigest()
                state.update(chunk)
    except OSError:
        return None


def handler(params: Dict[str, Any]) -> Any:
    """RPC `mirror.differing`: {"root": ..., "expected": {path: sha256 | null}}."""
    return differing(str(params["root"]), dict(params["expected"]))
