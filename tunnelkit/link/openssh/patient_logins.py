"""Hosts whose logins wait for their user: ssh must allow them a long silence."""

from __future__ import annotations

import contextlib
from pathlib import Path

_MOST_BYTES = 64 * 1024


class PatientLogins:
    """Hosts whose logins ask questions, or wait for a confirmation on a phone.

    file: keeps them for later sessions, a host a line; `quick-logins` beside it keeps the hosts
    that let their user in at once. None: only this object knows them. Losing one costs the user a
    login that breaks off after 15 s, or a loss that is noticed later, so errors of the files are
    no errors.
    """

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._quick = None if file is None else file.with_name("quick-logins")
        self._here: set[str] = set()

    def __contains__(self, host: str) -> bool:
        return host in self._here or host in _kept(self._file)

    def may_contain(self, host: str) -> bool:
        """True also for a host that was never seen to let its user in at once, if files are kept:
        its first login may wait for a confirmation."""
        if host in self:
            return True
        return self._quick is not None and host not in _kept(self._quick)

    def add(self, host: str) -> None:
        """Note a host that has made its user act."""
        if host not in self:
            self._here.add(host)
            _keep(self._file, host)

    def add_quick(self, host: str) -> None:
        """Note a host that let its user in at once."""
        if self.may_contain(host) and host not in self:
            _keep(self._quick, host)


def _keep(file: Path | None, host: str) -> None:
    if file is not None and host.isprintable():
        with contextlib.suppress(OSError), open(file, "a", encoding="utf-8") as kept:
            kept.write(f"{host}\n")


def _kept(file: Path | None) -> set[str]:
    try:
        if file is None or file.stat().st_size > _MOST_BYTES:
            return set()
        return set(file.read_text("utf-8", "replace").splitlines())
    except OSError:
        return set()
