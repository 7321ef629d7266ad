"""The order of ciphers: quicker first, and nothing that was not allowed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tunnelkit.link.shared import ciphers

CHACHA, GCM = "chacha20-poly1305@openssh.com", "aes128-gcm@openssh.com"


@pytest.fixture
def aes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ciphers, "has_aes", lambda: True)


@pytest.mark.usefixtures("aes")
def test_aes_gcm_comes_first_and_nothing_is_added() -> None:
    allowed = f"{CHACHA},aes256-ctr,{GCM},aes128-ctr"
    assert ciphers.cipher_options(allowed) == [
        "-o",
        f"Ciphers={GCM},{CHACHA},aes256-ctr,aes128-ctr",
    ]


@pytest.mark.usefixtures("aes")
@pytest.mark.parametrize(
    "allowed", ["", f"{CHACHA}", f"{CHACHA},aes256-ctr", f"aes256-ctr,{GCM}", f"{GCM},{CHACHA}"]
)
def test_a_list_of_somebodys_own_stays(allowed: str) -> None:
    assert ciphers.cipher_options(allowed) == []


def test_nothing_changes_without_the_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ciphers, "has_aes", lambda: False)
    assert ciphers.cipher_options(f"{CHACHA},{GCM}") == []


@pytest.mark.parametrize(
    ("line", "first"),
    [
        (f"ciphers {CHACHA},aes128-ctr,{GCM},aes256-ctr", f"{GCM},{CHACHA},aes128-ctr,aes256-ctr"),
        (f"ciphers {CHACHA},{GCM}", f"{GCM},{CHACHA}"),
        ("ciphers aes256-ctr", ""),
        (f"ciphers aes256-ctr,{GCM}", ""),
        ("", ""),
    ],
)
def test_the_script_for_the_login_host_says_the_same(tmp_path: Path, line: str, first: str) -> None:
    ssh, cpu = tmp_path / "ssh", tmp_path / "grep"
    ssh.write_text(f"#!/bin/sh\necho hostname x\necho '{line}'\n")
    cpu.write_text("#!/bin/sh\nexit 0\n")  # whatever this machine has: it has AES
    for program in (ssh, cpu):
        program.chmod(0o700)
    done = subprocess.run(
        ["sh", "-c", ciphers.CIPHERS_SCRIPT + 'printf "%s" "$c"', "sh", "node1"],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr, done.stdout) == (0, "", first)
