"""Choice of a transfer: rsync, or tar where there is no usable rsync."""

from __future__ import annotations

from collections.abc import Callable

from tunnelkit.errors import MissingProgram
from tunnelkit.mirror.remote.login_shell import MODULE_HINT, advice, first_words
from tunnelkit.mirror.remote.root import RemoteRoot
from tunnelkit.mirror.transfer.base import Transfer
from tunnelkit.mirror.transfer.rsync import Rsync, rsync_defect
from tunnelkit.mirror.transfer.tar import TarTransfer
from tunnelkit.remote_script import RemoteHost


async def choose_transfer(
    remote: RemoteHost,
    local_root: str,
    target: RemoteRoot,
    *,
    say: Callable[[str], None] = lambda line: None,
) -> Transfer:
    """Return rsync if both ends have a usable one and the login shell is silent, else tar.

    Tar is announced with one line to the user. Raises MissingProgram if neither is usable.
    """
    rsync, host = Rsync(remote, local_root), remote.destination()
    why = await rsync.defect()
    where = "this computer"
    if why is None:
        why, where = rsync_defect(target.rsync), host
    if why is None and not target.noise:
        return rsync
    if why is None:
        return _around_noise(remote, local_root, target, say)
    if not target.tar:
        raise MissingProgram(
            f"there is no way to send files to {host}",
            cause=f"{where}: {why}; and {host} has no tar",
            hint=f"install rsync there, or {MODULE_HINT}; or use `tk mount`",
        )
    say(f"mirror: {why} on {where}: sending by tar")
    return TarTransfer(remote, local_root, far_tar=target.tar)


def _around_noise(
    remote: RemoteHost, local_root: str, target: RemoteRoot, say: Callable[[str], None]
) -> Transfer:
    host, said = remote.destination(), first_words(target.noise)
    why = f"the login shell on {host} prints {said!r} before each command's output"
    if not target.tar:
        raise MissingProgram(
            f"there is no way to send files to {host}",
            cause=f"{why}, which breaks rsync; and {host} has no tar",
            hint=advice(target.shell),
        )
    say(f"mirror: {why}, which breaks rsync: sending by tar; {advice(target.shell)}")
    return TarTransfer(remote, local_root, far_tar=target.tar)
