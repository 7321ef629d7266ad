"""A login host that asks for a one-time code: real sshd, real PAM, pam_oath.

The PAM service is the rig's own: sshd names it by the name it was started under, so it is
started under one that nobody else uses. Nothing of the machine's own login is touched.
"""

from __future__ import annotations

import getpass
import hashlib
import hmac
import os
import secrets
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.login_rig import LoginHost, login_home
from tunnelkit.lab import LabInfo
from tunnelkit.lab.programs import find_program

_PAM_DIR = Path("/etc/pam.d")
_PERIOD_S = 30
_MODULES = ("/lib/*/security/pam_oath.so", "/usr/lib/*/security/pam_oath.so")
ASKS = r"One-time password[^—\n]*: \Z"


def why_no_pam() -> str | None:
    """Why this machine can't have the rig; None if it can."""
    if os.geteuid() != 0:
        return "a PAM service of its own needs root"
    if not any(Path("/").glob(pattern.lstrip("/")) for pattern in _MODULES):
        return "pam_oath is not installed: scripts/setup --tests"
    return None


class CodeHost(LoginHost):
    """Lets nobody in without a key and the code of the moment."""

    def prepare(self) -> None:
        """Make the secret, the PAM service, and the name that sshd runs under."""
        self._secret = secrets.token_bytes(20)
        self._used = 0
        users = self.home / "users.oath"
        users.write_text(f"HOTP/T{_PERIOD_S}/6 {getpass.getuser()} - {self._secret.hex()}\n")
        users.chmod(0o600)
        self.program = self.home / f"tkpam{secrets.token_hex(4)}"
        self.program.symlink_to(find_program("sshd"))
        # The window is wide, so that each next code of a test is one that time has yet to reach.
        oath = f"pam_oath.so usersfile={users} window=60 digits=6"
        self.service = _PAM_DIR / self.program.name
        self.service.write_text(
            f"auth required {oath}\naccount required pam_permit.so\n"
            "password required pam_deny.so\nsession required pam_permit.so\n"
        )

    def code(self) -> str:
        """A code that is good and was never used."""
        self._used = max(self._used + 1, int(time.time()) // _PERIOD_S)
        digest = hmac.new(self._secret, struct.pack(">Q", self._used), hashlib.sha1).digest()
        start = digest[-1] & 15
        number = struct.unpack(">I", digest[start : start + 4])[0] & 0x7FFFFFFF
        return f"{number % 10**6:06d}"


@contextmanager
def code_host(lab: LabInfo) -> Iterator[CodeHost]:
    """The host with its PAM service; both are gone afterwards."""
    with login_home() as home:
        host = CodeHost(
            lab,
            home,
            "UsePAM yes",
            # Under prohibit-password sshd gives PAM a wrong answer in place of root's.
            "PermitRootLogin yes",
            "KbdInteractiveAuthentication yes",
            "AuthenticationMethods publickey,keyboard-interactive",
        )
        host.prepare()
        try:
            host.start(str(host.program))
            yield host
        finally:
            host.stop()
            host.service.unlink(missing_ok=True)
        host.check()
