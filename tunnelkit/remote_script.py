"""Small sh scripts on a host of the cluster, and the interface of such a host.

A marker starts a script's output: what the login shell printed before it is noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tunnelkit.errors import ConnectionFailed, MirrorError
from tunnelkit.model import Completed

MARK = b"\0tk-mirror-1\0"
SETUP = "LC_ALL=C; export LC_ALL; printf '\\0tk-mirror-1\\0'\n"
_SSH_FAILED = 255


class RemoteHost(Protocol):
    """The login host, which sees the cluster's shared file system."""

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 30.0
    ) -> Completed:
        """Run one command to its end; the words of `argv` arrive exactly."""
        ...

    def remote_shell(self) -> list[str]:
        """Return the argv of an ssh-like program, without the host, for `rsync -e`."""
        ...

    def destination(self) -> str:
        """Return the host's name for `remote_shell`."""
        ...


@dataclass(frozen=True, slots=True)
class ScriptResult:
    """The result of a script. noise: output of the login shell before the script began."""

    exit_code: int
    items: list[bytes]
    error_text: str
    noise: bytes = b""


async def run_script(
    remote: RemoteHost,
    script: str,
    args: Sequence[str],
    *,
    what: str,
    hint: str | None = None,
    stdin: bytes = b"",
    timeout_s: float = 30.0,
    may_fail: bool = False,
    error: type[MirrorError] = MirrorError,
) -> ScriptResult:
    """Run `script` under sh with `args` as $1 and so on.

    Raises `error` with `what` and `hint` if it fails, unless `may_fail`; ConnectionFailed
    (transient) if it never ran."""
    done = await remote.run(
        ["sh", "-c", SETUP + script, "tk", *args], stdin=stdin, timeout_s=timeout_s
    )
    noise, found, output = done.stdout.partition(MARK)
    if not found:
        raise ConnectionFailed(
            f"no answer from a command on {remote.destination()}",
            cause=done.error_text or f"exit code {done.exit_code}",
            transient=True,
            hint="it is tried again; `tk doctor` checks the login shell there",
        )
    if done.exit_code == _SSH_FAILED:
        raise ConnectionFailed(
            f"the connection to {remote.destination()} broke",
            cause=done.error_text or None,
            transient=True,
            hint="it goes on once the connection is back; see `tk status`",
        )
    if done.exit_code != 0 and not may_fail:
        raise error(
            f"{what} on {remote.destination()}",
            cause=done.error_text or f"exit code {done.exit_code}",
            hint=hint,
        )
    items = output.split(b"\0")[:-1]
    return ScriptResult(done.exit_code, items, done.error_text, noise)
