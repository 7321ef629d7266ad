"""Mirrored roots that pods have in common: a volume of both, which only one of them writes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tunnelkit.errors import MirrorError, TunnelkitError
from tunnelkit.mirror.mirror import Mirror
from tunnelkit.mirror.remote import same_root
from tunnelkit.mirror.remote.same_root import RootMark
from tunnelkit.model import MirrorSpec
from tunnelkit.remote_script import RemoteHost


@dataclass(frozen=True, slots=True)
class RootWriter:
    """A mirror that writes one root in one pod."""

    pod: str
    remote: RemoteHost
    mirror: Mirror


@dataclass(frozen=True, slots=True)
class SharedRoot:
    """A root that another pod's mirror writes. root: the pod's own path of it."""

    writer: RootWriter
    root: str


class SharedRoots:
    """The mirrors that write, by root. Decide for one pod at a time, within `turn`."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self._writers: dict[str, list[RootWriter]] = {}

    def add(self, writer: RootWriter) -> None:
        """Add a mirror whose root exists by now."""
        self._writers.setdefault(writer.mirror.spec.name, []).append(writer)

    def drop(self, pod: str) -> None:
        """Forget the mirrors of a pod."""
        for name, writers in self._writers.items():
            self._writers[name] = [one for one in writers if one.pod != pod]

    async def shared_by(
        self, remote: RemoteHost, specs: Sequence[MirrorSpec]
    ) -> Mapping[str, SharedRoot]:
        """Return by name the roots of a pod that a mirror writes already; others are its own.

        Raises MirrorError where it can't be known, and
        ConnectionFailed.
        """
        answers = await asyncio.gather(*(self._shared(remote, spec) for spec in specs))
        return {
            spec.name: found
            for spec, found in zip(specs, answers, strict=True)
            if found is not None
        }

    async def _shared(self, remote: RemoteHost, spec: MirrorSpec) -> SharedRoot | None:
        writers = self._writers.get(spec.name, [])
        put = await asyncio.gather(
            *(same_root.mark(one.remote, one.mirror.remote_root) for one in writers),
            return_exceptions=True,
        )
        marks = [one for one in put if isinstance(one, RootMark)]
        try:
            for one in put:
                if isinstance(one, BaseException):
                    raise one
            seen = await same_root.look(remote, spec.remote_dir, marks)
        finally:
            pairs = zip(writers, put, strict=True)
            await asyncio.gather(*(_unmark(writer, one) for writer, one in pairs))
        found = seen.sees(marks)
        if found is not None:
            return SharedRoot(_of(found, writers, put), seen.root)
        mixed = seen.shares_owner(marks)
        if mixed is None:
            return None
        other = _of(mixed, writers, put).pod
        raise MirrorError(
            f"{spec.remote_dir} is another directory than in {other}, but what lies beside it is "
            "the same",
            cause=f"the volume around it is shared with {other}, so both would have one owner file",
            hint="share that directory, too, or name one in [mirror] remote that lies on one disk",
        )


def _of(
    mark: RootMark, writers: Sequence[RootWriter], put: Sequence[RootMark | BaseException]
) -> RootWriter:
    return writers[put.index(mark)]


async def _unmark(writer: RootWriter, put: RootMark | BaseException) -> None:
    if isinstance(put, RootMark) and put.is_there:
        with contextlib.suppress(TunnelkitError):
            await same_root.unmark(writer.remote, put)
