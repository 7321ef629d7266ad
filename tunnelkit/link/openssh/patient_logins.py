"""Hosts whose logins wait for their user: ssh must allow them a long silence."""

from __future__ import annotations

import contextlib
from pathlib import Path

_MOST_BYTES = 64 * 1024


class PatientLogins:
    """Hosts whose logins ask questions, or wait for a confirmation on a phone.

    file: keeps them for later sessions, a host a line; None: only this object knows them. Losing
    one costs the user a login that breaks off after 15 s, so errors of the file are no errors.
    """

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._here: set[str] = set()

    def __contains__(self, host: str) -> bool:
        return host in self._here or host in self._kept()

    def add(self, host: str) -> None:
        """Note a host that has made its user act."""
        if host in self:
            return
        self._here.add(host)
        if self._file is not None and host.isprintable():
            with contextlib.suppress(OSError), open(self._file, "a", encoding="utf-8") as file:
                file.write(f"{host}\n")

    def _kept(self) -> set[str]:
        try:
            if self._file is None or self._file.stat().st_size > _MOST_BYTES:
                return set()
            return set(self._file.read_text("utf-8", "replace").splitlines())
        except OSError:
            return set()
