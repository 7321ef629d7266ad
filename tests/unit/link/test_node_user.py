"""The user's name on a node: the login host's, unless ssh_config has one for the node."""

from __future__ import annotations

import getpass
import os
import pwd
import shutil
from pathlib import Path

import pytest

from tunnelkit.link.openssh.link import OpenSSHLink
from tunnelkit.link.options import LinkOptions
from tunnelkit.link.paramiko_link.link import ParamikoLink
from tunnelkit.link.shared.host_keys import effective_config
from tunnelkit.model import Hop

CASES = [
    ("me@login", "", "me"),
    ("login", "Host login\n  User me\n", "me"),
    ("login", "Host *\n  User me\n", "me"),
    ("me@login", "Host node*\n  User ann\n", "ann"),
    ("login", "", None),
]


def options(tmp_path: Path, login: str, text: str) -> LinkOptions:
    config = tmp_path / "config"
    config.write_text(text)
    return LinkOptions(Hop(login), ssh_config=config, known_hosts=tmp_path / "known_hosts")


@pytest.mark.skipif(shutil.which("ssh") is None, reason="ssh reads its own configuration")
@pytest.mark.parametrize(("login", "text", "user"), CASES)
async def test_openssh(tmp_path: Path, login: str, text: str, user: str | None) -> None:
    link = OpenSSHLink(options(tmp_path, login, text), control_dir=tmp_path / "ctl")
    argv, _ = await link._prepare_node("node4", patient=False)
    config = await effective_config([argv[0], "-G", *argv[1:]], "node4")
    assert config.user == (user or pwd.getpwuid(os.getuid()).pw_name)


@pytest.mark.parametrize(("login", "text", "user"), CASES)
def test_paramiko(tmp_path: Path, login: str, text: str, user: str | None) -> None:
    link = ParamikoLink(options(tmp_path, login, text), control_dir=tmp_path / "ctl")
    (step,) = link._node_steps("node4")
    assert step.host.user == (user or getpass.getuser())
