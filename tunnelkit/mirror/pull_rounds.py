"""Fetches files of which a job may remove some meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from tunnelkit.errors import MirrorError
from tunnelkit.mirror.remote.edits import paths_under
from tunnelkit.mirror.remote.scripts import removed_paths
from tunnelkit.mirror.transfer.base import FetchRule, Transfer, TransferResult
from tunnelkit.remote_script import RemoteHost

#: A job may remove files in each of them.
_MOST_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Fetch:
    """The way that files come. real_root: the remote root, symlinks resolved."""

    remote: RemoteHost
    transfer: Transfer
    real_root: str

    async def those_there(
        self,
        paths: Collection[str],
        sizes: Mapping[str, int],
        rule: FetchRule,
        listen: Callable[[bytes], None],
    ) -> tuple[set[str], set[str]]:
        """Fetch those that are still there. Return those that came, and those that are gone.

        Raises MirrorError if others did not come."""
        came: set[str] = set()
        gone: set[str] = set()
        left = set(paths)
        for n in range(_MOST_ROUNDS):
            if not left:
                break
            size_bytes = sum(sizes[path] for path in left)
            result = await self.transfer.fetch(
                left, self.real_root, rule=rule, size_bytes=size_bytes, listen=listen
            )
            came |= result.came
            if not result.partial:
                break
            # The exit code is the same whether files are gone or can't be read: the rest is
            # fetched once more without those that are gone.
            if result.failed:
                check_complete(result, self.remote)
            left -= result.came | result.kept
            removed = await removed_paths(self.remote, self.real_root, left)
            if not removed or (n == _MOST_ROUNDS - 1 and left != removed):
                check_complete(result, self.remote)
            gone |= removed
            left -= removed
        return came, gone


async def named_and_gone(
    remote: RemoteHost, real_root: str, wanted: Sequence[str], gone: Collection[str]
) -> list[str]:
    """Return those of `wanted` that are gone, or are directories that went with files in them."""
    files = set(gone).intersection(wanted)
    above = {one for one in wanted if one and one not in files and paths_under(gone, [one])}
    return sorted(files | await removed_paths(remote, real_root, above))


def check_complete(result: TransferResult, remote: RemoteHost) -> None:
    """Raise MirrorError if something did not come."""
    if result.partial:
        raise MirrorError(
            f"not all files came from {remote.destination()}",
            cause=result.error_text or None,
            hint="put that right and call it again: it goes on where it was",
            transient=True,
        )
