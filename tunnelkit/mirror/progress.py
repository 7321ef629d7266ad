"""Progress of a big transfer, for display."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TypedDict

from tunnelkit.mirror.tree.scanner import DIR, Entry

#: A transfer of this size shows its progress.
SHOW_FILES = 200
SHOW_BYTES = 4 << 20

# `--info=progress2 --no-human-readable`: bytes, per cent, rate, time, and, once a file is done,
# (xfr#FILES, to-chk=LEFT/ALL). `ir-chk` while rsync still learns the names.
_LINE = re.compile(rb"\s*(\d+)\s+\d+%\s+\S+\s+\S+(?:\s+\(xfr#(\d+),)?")


class ProgressInfo(TypedDict):
    """A big transfer under way. eta_s: None while it can't be estimated."""

    files: int
    files_total: int
    bytes: int
    bytes_total: int
    eta_s: float | None


@dataclass(slots=True)
class Progress:
    """One transfer under way. Times are of `time.monotonic`."""

    files_total: int
    bytes_total: int
    sent_files: int = 0
    sent_bytes: int = 0
    started: float = field(default_factory=time.monotonic)
    _rest: bytes = field(default=b"", repr=False)

    @staticmethod
    def of(paths: Collection[str], sends: Mapping[str, Entry]) -> Progress | None:
        """Return the progress for sending these files; None if they are few."""
        files = sum(sends[path].kind != DIR for path in paths)
        size_bytes = sum(sends[path].size for path in paths)
        if files < SHOW_FILES and size_bytes < SHOW_BYTES:
            return None
        return Progress(files, size_bytes)

    def add(self, files: int, size_bytes: int) -> None:
        """Count more files and bytes as sent."""
        self.sent_files = min(self.sent_files + files, self.files_total)
        self.sent_bytes = min(self.sent_bytes + size_bytes, self.bytes_total)

    def feed(self, data: bytes) -> None:
        """Take rsync's output, as it comes."""
        *lines, self._rest = re.split(rb"[\r\n]", self._rest + data)
        for line in lines:
            match = _LINE.match(line)
            if match is not None:
                self.sent_bytes = min(int(match[1]), self.bytes_total)
                if match[2] is not None:
                    self.sent_files = min(int(match[2]), self.files_total)

    def eta_s(self, now: float | None = None) -> float | None:
        """Return the seconds left at the pace so far; None before there is one."""
        elapsed_s = (time.monotonic() if now is None else now) - self.started
        if self.bytes_total:
            done = self.sent_bytes / self.bytes_total
        else:
            done = self.sent_files / max(1, self.files_total)
        if elapsed_s < 0.2 or done <= 0:
            return None
        return elapsed_s * (1 - done) / done

    def to_json(self) -> ProgressInfo:
        """Return the JSON object of `tk status --json`."""
        return {
            "files": self.sent_files,
            "files_total": self.files_total,
            "bytes": self.sent_bytes,
            "bytes_total": self.bytes_total,
            "eta_s": self.eta_s(),
        }
