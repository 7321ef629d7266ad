"""Read a list that a script on the login host prints, item by item, with limits."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence

from tunnelkit.errors import ConnectionFailed, MirrorError
from tunnelkit.mirror.transfer.destination import hostile
from tunnelkit.mirror.transfer.stream import run_stream
from tunnelkit.mirror.transfer.tar_archive import Pipe
from tunnelkit.remote_command import remote_command
from tunnelkit.remote_script import MARK, SETUP, RemoteHost

#: Far more than a user pulls at once, and still acceptable for a laptop's memory.
MOST_ITEMS = 500_000
_MOST_BYTES = 128 << 20
_MOST_ITEM_BYTES = 16 << 10
_SSH_FAILED = 255


async def stream_items(
    remote: RemoteHost,
    script: str,
    args: Sequence[str],
    take: Callable[[bytes], None],
    *,
    what: str,
    timeout_s: float,
) -> None:
    """Run `script` under sh with `args` as $1..., and pass each item to `take`.

    take: called in a thread with each item that ends in NUL.
    Raises what `take` raises, MirrorError or ConnectionFailed (transient)."""
    host = remote.destination()
    items = _Items(host, take)
    command = remote_command(["sh", "-c", SETUP + script, "tk", *args])
    with tempfile.TemporaryFile() as nothing:
        code, said = await run_stream(
            remote, command, items.read, stdin=nothing, stall_s=timeout_s, budget_s=timeout_s
        )
    if not items.begun or code == _SSH_FAILED or code < 0:
        raise ConnectionFailed(
            f"no answer from a command on {host}",
            cause=said or f"exit code {code}",
            transient=True,
            hint="it is tried again; `tk doctor` checks the login shell there",
        )
    if code != 0:
        raise MirrorError(
            f"{what} on {host}",
            cause=said or f"exit code {code}",
            hint="may you read that directory there? `tk run ls` shows it",
        )


class _Items:
    """Splits the output at NULs.

    begun: True once the marker has come. Output before it is ignored."""

    def __init__(self, host: str, take: Callable[[bytes], None]) -> None:
        self._host = host
        self._take = take
        self._count = self._bytes = 0
        self.begun = False

    def read(self, pipe: Pipe) -> None:
        """Read to the end. Raises MirrorError for too much output, and what `take` raises."""
        rest = b""
        while data := pipe.read(1 << 16):
            self._bytes += len(data)
            if self._bytes > _MOST_BYTES:
                raise hostile(self._host, "its list of files has no end")
            rest = self._split(rest + data)
            if len(rest) > _MOST_BYTES // 128 or (self.begun and len(rest) > _MOST_ITEM_BYTES):
                raise hostile(self._host, "its list of files can't be read")

    def _split(self, data: bytes) -> bytes:
        if not self.begun:
            _, found, after = data.partition(MARK)
            if not found:
                return data
            self.begun, data = True, after
        *items, rest = data.split(b"\0")
        self._count += len(items)
        if self._count > MOST_ITEMS:
            raise hostile(self._host, f"it lists more than {MOST_ITEMS} files; ask for fewer")
        for item in items:
            self._take(item)
        return rest
