"""A login host that lies: the first programs on its PATH are what a test puts there."""

from __future__ import annotations

import io
import json
import os
import shlex
import shutil
import sys
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.far_path import far_path
from tests.support.mirror_sshd import Sshd


class LoginHost:
    """A real sshd whose commands find the test's own programs in place of some."""

    def __init__(self, programs: Path, data: Path) -> None:
        self._programs = programs
        self._data = data
        data.mkdir()
        # Held open for writing until the end of the test.
        self._end = data / "end"
        os.mkfifo(self._end, 0o600)
        self._holder = os.open(self._end, os.O_RDWR)
        #: A shell command that prints nothing, and ends with the test.
        self.hangs = f"exec cat {shlex.quote(str(self._end))}"

    def close(self) -> None:
        """End the programs that hang."""
        self._end.unlink()
        os.close(self._holder)

    def program(self, name: str, script: str) -> None:
        """Have `name` run this sh script from now on."""
        path = self._programs / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def lists(self, files: Iterable[tuple[str, int]]) -> None:
        """Have `find` print these names and sizes, whatever it is asked."""
        listed = self._data / "list"
        listed.write_bytes(b"".join(f"{size} {name}\0".encode() for name, size in files))
        self.program("find", f"exec cat {shlex.quote(str(listed))}")

    def sends(self, members: Iterable[tuple[tarfile.TarInfo, bytes]]) -> None:
        """Have `tar` send these members, whatever it is asked, and unpack as it should."""
        archive = self._data / "archive"
        with tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as out:
            for info, content in members:
                out.addfile(info, io.BytesIO(content))
        self.sends_bytes(archive.read_bytes())

    def sends_bytes(self, data: bytes, then: str = "") -> None:
        """Have `tar` send these bytes, then what this shell command prints."""
        archive = self._data / "archive"
        archive.write_bytes(data)
        real = shlex.quote(shutil.which("tar") or "tar")
        self.program(
            "tar",
            f'case " $* " in *" -c "*) ;; *) exec {real} "$@" ;; esac\n'
            f"cat {shlex.quote(str(archive))}\n{then}",
        )

    def sends_by_rsync(self, entries: Iterable[dict[str, Any]]) -> None:
        """Have `rsync`, as a sender, send these entries, see `rsync_sender`; as a receiver it
        does what it should."""
        script = self._data / "entries"
        script.write_text(json.dumps(list(entries)))
        sender = [sys.executable, str(Path(__file__).with_name("rsync_sender.py")), str(script)]
        real = shlex.quote(shutil.which("rsync") or "rsync")
        self.program(
            "rsync",
            f'case " $* " in *" --sender "*) ;; *) exec {real} "$@" ;; esac\n'
            f'exec {shlex.join(sender)} "$@"',
        )


def file(name: str, content: bytes = b"EVIL\n") -> tuple[tarfile.TarInfo, bytes]:
    """A file of an archive."""
    info = tarfile.TarInfo(name)
    info.size = len(content)
    return info, content


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tuple[tarfile.TarInfo, bytes]:
    """A symlink of an archive, or another entry without content."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info, b""


@pytest.fixture
def login_host(sshd: Sshd, tmp_path: Path) -> Iterator[LoginHost]:
    """A hostile login host at the other end of the mirror's rigs. It has no rsync, but one that
    `sends_by_rsync`."""
    with far_path(sshd, tmp_path / "programs", without=("rsync",)):
        host = LoginHost(tmp_path / "programs", tmp_path / "hostile")
        yield host
        host.close()
