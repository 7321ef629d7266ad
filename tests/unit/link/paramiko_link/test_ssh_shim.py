"""The program that stands for ssh before rsync and sshfs, and which link is chosen."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tunnelkit.errors import MissingProgram
from tunnelkit.link import factory
from tunnelkit.link.base import LinkSetup
from tunnelkit.link.options import LinkOptions
from tunnelkit.link.paramiko_link import ssh_shim
from tunnelkit.model import Hop


@pytest.mark.parametrize(
    ("words", "parsed"),
    [
        (["host", "rsync", "--server", "-e.x"], ("rsync --server -e.x", False)),
        (["-l", "me", "-p22", "-o", "A=b", "-oC=d", "host", "cmd"], ("cmd", False)),
        (["-x", "-a", "-oX=1", "-2", "host", "-s", "sftp"], ("sftp", True)),
        (["-xas", "--", "host", "sftp"], ("sftp", True)),
        (["--", "host", "sh -c 'a b'"], ("sh -c 'a b'", False)),
        (["-p", "22", "host"], ("", False)),
    ],
)
def test_ssh_s_words(words: list[str], parsed: tuple[str, bool]) -> None:
    assert ssh_shim.parse(words) == parsed


def test_without_a_link(tmp_path: Path) -> None:
    argv = [sys.executable, "-I", "-S", ssh_shim.__file__, str(tmp_path / "gone"), "", "h", "id"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 255
    assert "connection to the cluster is lost" in done.stderr


def test_which_link(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "ssh").write_text("#!/bin/sh\n")
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert factory.link_name("auto") == "openssh"
    assert factory.link_name("paramiko") == "paramiko"
    monkeypatch.setattr(sys, "platform", "win32")
    assert factory.link_name("auto") == "paramiko", "ssh there can't share a connection"
    monkeypatch.setattr(sys, "platform", "linux")
    (tmp_path / "ssh").unlink()
    assert factory.link_name("auto") == "paramiko"
    with pytest.raises(MissingProgram) as caught:
        factory.make_link("openssh", LinkOptions(Hop("login")), LinkSetup(tmp_path))
    assert "--link paramiko" in (caught.value.hint or "")
