"""The mounts of one session: made, watched, listed, and unmounted when it ends.

A server that does not answer is noticed within 15 s. Then the ssh that carries the mount is
ended, so that blocked readers get an error; the mount stays, and is back with the link.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

from tunnelkit.errors import TunnelkitError
from tunnelkit.model import PathMapping
from tunnelkit.mount import sshfs
from tunnelkit.mount.mount_table import (
    MountRecord,
    is_mounted,
    record_dir,
    records,
    resolve,
    sshfs_pids,
)
from tunnelkit.mount.sshfs import ProbeAnswer
from tunnelkit.remote_script import RemoteHost

log = logging.getLogger("tunnelkit.mirror")
#: Interval and limit of the probe: a silent server is noticed after 15 s at most.
_ASK_EVERY_S = 8.0
_ANSWER_S = 5.0


class MountStatus(TypedDict):
    """One mount in `tk status --json`. state: "ok" or what is wrong. since: Unix time."""

    mountpoint: str
    host: str
    remote: str
    state: str
    since: float


@dataclass(slots=True)
class _Watched:
    record: MountRecord
    state: str = ProbeAnswer.OK.value
    since: float = field(default_factory=time.time)


class Mounts:
    """The mounts of a session. Owns one task, from the first mount to `close`.

    owner: the session's id, by which the next session finds its mounts. say: called with a line
    for the user. changed: called when a mount's state has changed."""

    def __init__(
        self,
        remote: RemoteHost,
        *,
        state_dir: Path,
        owner: str,
        say: Callable[[str], None] = lambda line: None,
        changed: Callable[[], None] = lambda: None,
        ask_every_s: float = _ASK_EVERY_S,
        answer_s: float = _ANSWER_S,
    ) -> None:
        self._remote = remote
        self._state_dir = state_dir
        self._owner = owner
        self._say = say
        self._changed = changed
        self._ask_every_s = ask_every_s
        self._answer_s = answer_s
        self._mounts: dict[str, _Watched] = {}
        self._task: asyncio.Task[None] | None = None

    async def mount(self, remote_dir: str, mountpoint: Path) -> MountRecord:
        """Mount, and watch it. Raises as `sshfs.mount`."""
        record = await sshfs.mount(
            self._remote, remote_dir, mountpoint, state_dir=self._state_dir, owner=self._owner
        )
        self._watch(record)
        return record

    def adopt(self) -> int:
        """Take over the mounts of a killed session of the same owner; return their number."""
        found = [
            record
            for record in records(self._state_dir)
            if record.owner == self._owner and is_mounted(Path(record.mountpoint))
        ]
        for record in found:
            self._watch(record)
        return len(found)

    def describe(self) -> list[MountStatus]:
        """Return the mounts for `tk status`; since: Unix time."""
        return [
            {
                "mountpoint": one.record.mountpoint,
                "host": one.record.host,
                "remote": one.record.remote_root,
                "state": one.state,
                "since": one.since,
            }
            for one in self._mounts.values()
        ]

    def mappings(self) -> list[PathMapping]:
        """Return the path mappings from the mountpoints to the cluster."""
        return [
            PathMapping(one.record.mountpoint, one.record.remote_root)
            for one in self._mounts.values()
        ]

    def remote_of(self, path: str) -> str | None:
        """Return the remote path of an absolute local path below a mountpoint; else None.

        Touches no mount."""
        for mapping in self.mappings():
            below = os.path.relpath(path, mapping.local_root)
            if below == ".":
                return mapping.remote_root
            if below != ".." and not below.startswith("../"):
                return os.path.join(mapping.remote_root, below)
        return None

    async def close(self) -> None:
        """Unmount all of them. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        mounts, self._mounts = self._mounts, {}

        async def end(where: str) -> None:
            with contextlib.suppress(TunnelkitError):
                await sshfs.umount(Path(where), state_dir=self._state_dir)

        await asyncio.gather(*(end(where) for where in mounts))

    # -- inside -----------------------------------------------------------

    def _watch(self, record: MountRecord) -> None:
        self._mounts[record.mountpoint] = _Watched(record)
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="tk-mounts")
        self._changed()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._ask_every_s)
            looks = [self._look(one) for one in self._mounts.values()]
            for failure in await asyncio.gather(*looks, return_exceptions=True):
                if isinstance(failure, Exception):
                    log.error("a mount can't be watched", exc_info=failure)

    async def _look(self, one: _Watched) -> None:
        where = Path(one.record.mountpoint)
        if not is_mounted(where):
            self._drop(one)
            return
        if not sshfs_pids(where, record_dir(where, self._state_dir)):
            self._say(f"mount: the sshfs of {where} has ended: unmounted")
            with contextlib.suppress(TunnelkitError):
                await sshfs.umount(where, state_dir=self._state_dir)
            self._drop(one)
            return
        answer = await sshfs.ask(where, timeout_s=self._answer_s)
        if answer is ProbeAnswer.SILENT:
            sshfs.cut(where, state_dir=self._state_dir)
        self._become(one, answer)

    def _become(self, one: _Watched, answer: ProbeAnswer) -> None:
        if answer.value == one.state or not is_mounted(Path(one.record.mountpoint)):
            return
        was_ok = one.state == ProbeAnswer.OK.value
        one.state, one.since = answer.value, time.time()
        if answer is ProbeAnswer.OK:
            self._say(f"mount: {one.record.mountpoint} is back")
        elif was_ok:
            what = f"{one.record.host}:{one.record.remote_root} {answer.value}"
            self._say(f"mount: {one.record.mountpoint}: {what}: reading there fails")
        self._changed()

    def _drop(self, one: _Watched) -> None:
        """Drop a mount that was unmounted elsewhere: `tk umount` needs no session."""
        self._mounts.pop(one.record.mountpoint, None)
        self._changed()


async def umount_all(state_dir: Path, owner: str) -> None:
    """Unmount all mounts that a killed session has left."""
    for record in records(state_dir):
        if record.owner == owner:
            with contextlib.suppress(TunnelkitError):
                await sshfs.umount(Path(record.mountpoint), state_dir=state_dir)


def listed(state_dir: Path) -> list[dict[str, object]]:
    """Return all mounts of tk on this computer, of every session; see `Mounts.describe`.

    Contacts no server."""
    return [
        {
            "mountpoint": record.mountpoint,
            "host": record.host,
            "remote": record.remote_root,
            "state": "mounted",
        }
        for record in records(state_dir)
        if is_mounted(resolve(Path(record.mountpoint)))
    ]
