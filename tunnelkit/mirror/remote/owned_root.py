"""The remote root that one mirror owns: made, claimed, given up."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from pathlib import Path

from tunnelkit.errors import MissingProgram, TunnelkitError
from tunnelkit.mirror.remote.login_shell import MODULE_HINT
from tunnelkit.mirror.remote.owner import OwnerRecord, this_owner
from tunnelkit.mirror.remote.root import RemoteRoot, claim, prepare, release, unmake
from tunnelkit.model import MirrorSpec
from tunnelkit.remote_script import RemoteHost

_RELEASE_S = 3.0
_UNMAKE_S = 1.5


class OwnedRoot:
    """`prepare`, then `hold`; `release` at the end.

    path, real: the directory as the user names it, and with symlinks resolved; "" before
    `prepare`. taken_from: another laptop directory that owned it before.
    """

    def __init__(self, remote: RemoteHost, spec: MirrorSpec, state_dir: Path) -> None:
        self.remote = remote
        self.path = self.real = ""
        self.claim: OwnerRecord | None = None
        self.taken_from: str | None = None
        self._spec = spec
        self._state_dir = state_dir
        self._made = ""  # the directory that a start made, which may still fail

    async def prepare(self) -> RemoteRoot:
        """Make the directory if it is missing. Raises MirrorError, MissingProgram."""
        target = await prepare(self.remote, self._spec.remote_dir, guarded=self._spec.guarded)
        if not target.has_stat:
            raise MissingProgram(
                f"GNU stat or xargs is not found on {self.remote.destination()}",
                hint=f"install it there, or {MODULE_HINT}; or use `tk mount`",
            )
        self.path = target.root
        self._made = target.real if target.fresh else self._made
        return target

    async def hold(self, local_root: str, turn: str | None, *, take_over: bool) -> OwnerRecord:
        """Become the owner of `real`, or raise MirrorError with the owner's name.

        turn: the turn to keep, if this mirror owns it already.
        """
        owner = await asyncio.to_thread(this_owner, self._state_dir, local_root)
        if turn is not None:
            owner = replace(owner, turn=turn)
        held = self.claim = await claim(self.remote, self.real, owner, take_over=take_over)
        self.taken_from = held.taken_from or self.taken_from
        return held

    def keep(self) -> None:
        """Note that the start has succeeded: the directory stays."""
        self._made = ""

    async def unmake(self) -> None:
        """Remove the directory that a failed start made, if it is still empty."""
        made, self._made = self._made, ""
        if made:
            with contextlib.suppress(TunnelkitError, TimeoutError):
                async with asyncio.timeout(_UNMAKE_S):
                    await unmake(self.remote, made, timeout_s=_UNMAKE_S)

    async def release(self, *, unreachable: bool) -> None:
        """Remove the owner file. Idempotent.

        unreachable: not over a dead link; the owner file is no lock that could become stale.
        """
        held, self.claim = self.claim, None
        if held is not None and not unreachable:
            with contextlib.suppress(TunnelkitError, TimeoutError):
                async with asyncio.timeout(_RELEASE_S):
                    await release(self.remote, held, timeout_s=_RELEASE_S)
