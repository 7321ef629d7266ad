"""A laptop's end of the mirror channel, without a channel: parcels straight into `BatchChannel`."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tunnelkit.agent.mirror.batch_channel import BatchChannel
from tunnelkit.agent.mirror.dirfd_tree import stamp_of
from tunnelkit.agent.mirror.file_thread import FileGate
from tunnelkit.agent.mirror.root import MirroredRoot
from tunnelkit.mux.parcels import ParcelCutter, encode

MTIME_NS = 1_700_000_000_123_456_789
Header = dict[str, Any]


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def left(path: Path, *digests: str) -> Header:
    """What tk left, as it lies there now."""
    return {
        "stamp": stamp_of(os.lstat(path)),
        "size": os.lstat(path).st_size,
        "mtime_s": None,
        "digests": list(digests),
    }


def content(*versions: bytes) -> Header:
    """What tk left, known by its content alone."""
    return {"stamp": "", "size": -1, "mtime_s": None, "digests": [sha(one) for one in versions]}


class Side:
    """One channel. `send` for single parcels, `batch` for a whole one; `close` at the end."""

    def __init__(self, root: Path, owner: Header | None = None, nonce: str = "test") -> None:
        self.root = root
        self.gate = FileGate()
        self.answers: list[Header] = []
        self.on_answer: Callable[[Header], None] = lambda header: None
        self._cutter = ParcelCutter()
        self._batches = BatchChannel(
            MirroredRoot(str(root), owner), nonce, self.gate, self._answered
        )
        self._number = 0

    def _answered(self, data: bytes) -> None:
        for header, _ in self._cutter.feed(data):
            self.answers.append(header)
            self.on_answer(header)

    def feed(self, data: bytes) -> bool:
        return self._batches.feed(data)

    def send(self, header: Header, data: bytes = b"") -> bool:
        return self.feed(encode(header, data))

    def begin(self) -> int:
        self._number += 1
        self.send({"op": "begin", "batch": self._number, "replaced": "20261121T181500Z"})
        return self._number

    def commit(self) -> Header:
        """Commit; the results."""
        self.send({"op": "commit", "batch": self._number})
        return self.results

    def batch(self, *parcels: tuple[Header, bytes] | Header) -> Header:
        """A whole batch; its results."""
        self.begin()
        for parcel in parcels:
            header, data = parcel if isinstance(parcel, tuple) else (parcel, b"")
            assert self.send(header, data), self.answers
        return self.commit()

    @property
    def committed(self) -> Header:
        return next(one for one in reversed(self.answers) if "committed" in one)

    @property
    def results(self) -> Header:
        return dict(self.committed["results"])

    @property
    def proof(self) -> Header:
        return dict(self.answers[-1]["proof"])

    @property
    def differ(self) -> Header:
        return dict(self.answers[-1]["differ"])

    def close(self) -> None:
        self._batches.stop()
        self._batches.close()


def file(
    path: str, data: bytes, expect: Header | None = None, *, mode: int = 0o644, **more: Any
) -> tuple[Header, bytes]:
    header = {"op": "file", "path": path, "mode": mode, "mtime_ns": MTIME_NS, "size": len(data)}
    return {**header, "sha256": sha(data), "expect": expect, **more}, data


def link(path: str, target: str, expect: Header | None = None, **more: Any) -> Header:
    digest = sha(target.encode("utf-8", "surrogateescape"))
    header = {"op": "link", "path": path, "target": target, "mtime_ns": MTIME_NS}
    return {**header, "sha256": digest, "expect": expect, **more}


def meta(path: str, data: bytes, expect: Header | None, *, mode: int, **more: Any) -> Header:
    header = {"op": "meta", "path": path, "mode": mode, "mtime_ns": MTIME_NS, "size": len(data)}
    return {**header, "sha256": sha(data), "expect": expect, **more}


def directory(path: str, *, new: bool = True, mode: int = 0o755, **more: Any) -> Header:
    return {"op": "dir", "path": path, "mode": mode, "new": new, **more}


def delete(path: str, expect: Header | None, **more: Any) -> Header:
    return {"op": "del", "path": path, "expect": expect, **more}


def rmdir(path: str) -> Header:
    return {"op": "rmdir", "path": path}


def tree_of(root: Path) -> dict[str, Any]:
    """All below: bytes of files, ("link", target), None for directories."""
    found: dict[str, Any] = {}
    for base, names, files in os.walk(root):
        for name in [*names, *files]:
            path = Path(base, name)
            key = str(path.relative_to(root))
            if path.is_symlink():
                found[key] = ("link", os.readlink(path))
            elif path.is_dir():
                found[key] = None
            elif path.is_file():
                found[key] = path.read_bytes()
            else:
                found[key] = ("other",)
    return found


def parts_of(root: Path) -> list[str]:
    """Temporaries, wherever they are."""
    return [path for path in tree_of(root) if ".tk-part-" in path]


class Watcher:
    """Looks again and again, in a thread, until `stop`; `looks` counts, `wrong` collects."""

    def __init__(self, look: Callable[[], str | None]) -> None:
        self.looks = 0
        self.wrong: list[str] = []
        self._look = look
        self._stopped = threading.Event()
        self._first = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Watcher:
        self._thread.start()
        assert self._first.wait(30)
        return self

    def __exit__(self, *exc: Any) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.is_set():
            why = self._look()
            if why is not None:
                self.wrong.append(why)
            self.looks += 1
            self._first.set()
