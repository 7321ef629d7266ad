"""A log of this machine that a session writes: its end, and what comes, over a rotation too."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

_LOOK_AGAIN_S = 0.1


class LocalLog:
    """One log. The session may rename it to NAME.1 and begin again, or cut its older half."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._older = path.with_name(f"{path.name}.1")
        self._last_line = b""
        self._was_cut = False

    def last_bytes(self, most: int) -> bytes:
        """Return the last bytes, the rotated part's too if this one is shorter."""
        newer = _end_of(self._path, most)
        return _end_of(self._older, most - len(newer)) + newer

    def show(self, count: int, take: Callable[[bytes], None], *, follow: bool) -> None:
        """Give the last `count` lines to `take`; with `follow` then all that is written later."""
        file: BinaryIO = open(self._path, "rb")  # noqa: SIM115
        try:
            lines = deque(file, maxlen=max(0, count))
            if len(lines) < count:
                lines = deque([*self._lines_before(), *lines], maxlen=count)
            self._give(b"".join(lines), take)
            while follow:
                file = self._next(file, take)
        finally:
            file.close()

    def _lines_before(self) -> list[bytes]:
        try:
            return self._older.read_bytes().splitlines(keepends=True)
        except OSError:
            return []

    def _next(self, file: BinaryIO, take: Callable[[bytes], None]) -> BinaryIO:
        """Take what is there now, or wait a moment; return the file to go on with."""
        if data := file.read():
            self._give(self._unseen(data) if self._was_cut else data, take)
            self._was_cut = False
        elif self._is_another(file):
            self._give(file.read(), take)  # what came between the two looks
            file.close()
            return open(self._path, "rb")
        elif os.fstat(file.fileno()).st_size < file.tell():
            file.seek(0)
            self._was_cut = True
        else:
            time.sleep(_LOOK_AGAIN_S)
        return file

    def _unseen(self, data: bytes) -> bytes:
        """Return what is new in a log whose newer half was written again."""
        at = data.rfind(self._last_line)
        return data[at + len(self._last_line) :] if at >= 0 else data

    def _is_another(self, file: BinaryIO) -> bool:
        try:
            return not os.path.samestat(os.stat(self._path), os.fstat(file.fileno()))
        except OSError:
            return False  # between two renames, or the state directory is gone

    def _give(self, data: bytes, take: Callable[[bytes], None]) -> None:
        if data:
            self._last_line = data[data.rfind(b"\n", 0, -1) + 1 :]
            take(data)


def _end_of(path: Path, most: int) -> bytes:
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - most))
            return file.read(most)
    except OSError:
        return b""
