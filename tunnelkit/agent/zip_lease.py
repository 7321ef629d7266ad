"""The lease of the agent's zip: a file beside it, whose time says when the zip was last in use.

A session that stores another version's zip removes those whose lease is old
(session/agent/install.py). A read is no sign of use: many file servers keep no access times. Older
versions of tk read the zips' own times, so these are renewed as well.
"""

import contextlib
import glob
import os
import re

_EVERY_S = 3600.0
_NAME = re.compile(r"agent-[0-9a-f]{32}")


def renew(path: str) -> None:
    """Say that the zip at `path` is in use. A home that can't be written is left as it is."""
    base = path[: -len(".zip")]
    if not (path.endswith(".zip") and _NAME.fullmatch(os.path.basename(base))):
        return
    with contextlib.suppress(OSError):
        os.close(os.open(f"{base}.lease", os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600))
    for each in (f"{base}.lease", path, *glob.glob(f"{glob.escape(base)}-*.zip")):
        with contextlib.suppress(OSError):
            os.utime(each)


async def keep(path: str) -> None:
    """Renew it now and every hour; until cancelled."""
    # `attach` must not pay for it.
    import asyncio

    from tunnelkit.agent.mirror.file_thread import FileThread

    worker = FileThread("lease")
    try:
        while True:
            await worker.do(renew, path)
            await asyncio.sleep(_EVERY_S)
    finally:
        worker.end()
