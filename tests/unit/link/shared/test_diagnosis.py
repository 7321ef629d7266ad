"""Messages of ssh in words for users. Texts are those of OpenSSH 9.2, 9.9 and 10."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.errors import (
    AuthenticationFailed,
    ConfigError,
    ConnectionFailed,
    ConnectionThrottled,
    HostKeyError,
    TunnelkitError,
    UnknownHostKey,
)
from tunnelkit.link.shared.diagnosis import diagnose

CASES = [
    (
        "ssh: Could not resolve hostname nope: Name or service not known",
        ConnectionFailed,
        "there is no host called login (nope)",
    ),
    (
        "ssh: connect to host 127.0.0.1 port 22: Connection refused\r",
        ConnectionFailed,
        "login refused the connection",
    ),
    (
        "ssh: connect to host 10.0.0.1 port 22: Connection timed out",
        ConnectionFailed,
        "login does not answer",
    ),
    (
        "Connection timed out during banner exchange\nConnection to 1.2.3.4 port 22 timed out",
        ConnectionFailed,
        "login does not answer",
    ),
    (
        "ssh: connect to host x port 22: No route to host",
        ConnectionFailed,
        "login can't be reached",
    ),
    (
        "ssh: Could not resolve hostname login.x: Temporary failure in name resolution",
        ConnectionFailed,
        "the name login (login.x) can't be resolved now",
    ),
    (
        "Welcome to the cluster\nme@login: Permission denied (publickey,password).",
        AuthenticationFailed,
        "login did not let us in",
    ),
    (
        "Received disconnect from 1.2.3.4 port 22:2: Too many authentication failures",
        AuthenticationFailed,
        "login did not let us in",
    ),
    (
        "No ED25519 host key is known for login and you have requested strict checking.\n"
        "Host key verification failed.",
        UnknownHostKey,
        "the host key of login is not known",
    ),
    (
        "@       WARNING: REVOKED HOST KEY DETECTED!               @\n"
        "The ED25519 host key for login is marked as revoked.\n"
        "ED25519 host key for login was revoked and you have requested strict checking.\n"
        "Host key verification failed.",
        HostKeyError,
        "the host key of login is revoked",
    ),
    ("Host key verification failed.", HostKeyError, "the host key of login is not known"),
    (
        "/h/config: line 3: Bad configuration option: foo\n/h/config: terminating, 1 bad",
        ConfigError,
        "ssh refuses its configuration for login",
    ),
    (
        "Bad owner or permissions on /home/me/.ssh/config",
        ConfigError,
        "ssh refuses its configuration for login",
    ),
    (
        "Connection closed by UNKNOWN port 65535\n"
        "channel 1: open failed: administratively prohibited: open failed",
        ConnectionFailed,
        "the host before login forbids TCP forwarding",
    ),
    (
        "kex_exchange_identification: Connection closed by remote host",
        ConnectionThrottled,
        "login closed the connection before we could log in",
    ),
    ("", ConnectionFailed, "no connection to login"),
]


@pytest.mark.parametrize(("text", "kind", "message"), CASES)
def test_texts(text: str, kind: type[TunnelkitError], message: str) -> None:
    error = diagnose("login", text)
    assert type(error) is kind
    assert error.message == message
    assert error.hint


def test_changed_key_shows_both_fingerprints(tmp_path: Path) -> None:
    key = tmp_path / "key"
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True, timeout=20
    )
    known = subprocess.run(
        ["ssh-keygen", "-lf", str(key)], check=True, capture_output=True, text=True
    ).stdout.split()[1]
    hosts = tmp_path / "known hosts"
    hosts.write_text(f"# a comment\nlogin {key.with_suffix('.pub').read_text()}")
    error = diagnose(
        "login",
        "@@@@@\n@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\n@@@@@\n"
        "The fingerprint for the ED25519 key sent by the remote host is\n"
        "SHA256:0ffered.\nPlease contact your system administrator.\n"
        f"Offending ED25519 key in {hosts}:2\n"
        "Host key for login has changed and you have requested strict checking.\n"
        "Host key verification failed.",
    )
    assert isinstance(error, HostKeyError)
    assert known in error.message and "SHA256:0ffered" in error.message
    assert f"-f '{hosts}'" in (error.hint or "")


@given(st.text())
def test_any_text_gives_one_line(text: str) -> None:
    assert "\n" not in diagnose("login", text).one_line()
