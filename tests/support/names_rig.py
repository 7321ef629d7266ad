"""Name resolution of a test's own, in a mount namespace: names with several addresses, or a
name server that never answers. For root."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

_OWN_NAMES = """\
mount --bind "$1" /etc/resolv.conf && mount --bind "$2" /etc/nsswitch.conf &&
  mount --bind "$3" /etc/hosts && shift 3 && exec "$@"
"""


class Names:
    """A laptop's name service of its own: a hosts file, and behind it a server that is silent.
    enter: argv prefix of what is to use it."""

    login = "login.example.test"

    def __init__(self, directory: Path) -> None:
        self._silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._silent.bind(("127.0.0.54", 53))
        except OSError as error:
            self._silent.close()
            pytest.skip(f"no name server can be put on port 53: {error}")
        self.hosts = directory / "hosts"
        resolv, nsswitch = directory / "resolv.conf", directory / "nsswitch.conf"
        # By default a silent server is waited for 10 s; too long for a test.
        resolv.write_text("nameserver 127.0.0.54\noptions timeout:1 attempts:1\n")
        nsswitch.write_text("hosts: files dns\npasswd: files\ngroup: files\n")
        self.give("127.0.0.1")
        files = (str(resolv), str(nsswitch), str(self.hosts))
        self.enter = ("unshare", "--mount", "sh", "-c", _OWN_NAMES, "sh", *files)
        if subprocess.run([*self.enter, "true"], capture_output=True, check=False).returncode:
            self.close()
            pytest.skip("this root may not mount (a container without CAP_SYS_ADMIN)")

    def give(self, *addresses: str) -> None:
        """The login host's addresses in the hosts file; written in place, for it is mounted."""
        lines = [f"{address} {self.login}" for address in addresses]
        self.hosts.write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))

    def close(self) -> None:
        self._silent.close()


@pytest.fixture
def names(tmp_path: Path) -> Iterator[Names]:
    made = Names(tmp_path)
    yield made
    made.close()
