"""What holds all tests of faults to their authentications notices one too many."""

from __future__ import annotations

import subprocess

import pytest

from tests.lab_fixtures import lab_environ
from tests.support.login_rig import LoginHost, login_host
from tests.support.logins import Budget, attempts
from tunnelkit.lab import LabInfo

_CODES = """\
Postponed keyboard-interactive for ann from 127.0.0.1 port 4711 ssh2 [preauth]
Partial publickey for ann from 127.0.0.1 port 4711 ssh2: ED25519 SHA256:abc
Postponed keyboard-interactive for ann from 127.0.0.1 port 4711 ssh2 [preauth]
Postponed keyboard-interactive/pam for ann from 127.0.0.1 port 4711 ssh2 [preauth]
Accepted keyboard-interactive/pam for ann from 127.0.0.1 port 4711 ssh2
Failed password for invalid user bob from 127.0.0.1 port 4712 ssh2
"""


def _come(host: LoginHost, *options: str) -> int:
    argv = ["ssh", "-F", str(host.client_config), "-o", "BatchMode=yes", *options, "login", "true"]
    environ = lab_environ(host.lab)
    return subprocess.run(argv, env=environ, capture_output=True, timeout=60).returncode


def test_a_login_and_a_refusal_that_nobody_stated(lab: LabInfo) -> None:
    with login_host(lab) as host:
        assert _come(host) == 0
        host.check()
        assert _come(host) == 0
        with pytest.raises(AssertionError, match="2 logins, of 1 at most") as caught:
            host.check()
        assert str(caught.value).count("Accepted publickey for ") == 3, "the lines, and their sum"
        host.logins = 3
        host.check()
        stranger = str(host.home / "stranger")
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", stranger], check=True)
        assert _come(host, "-i", stranger) == 0, "by the second key"
        with pytest.raises(AssertionError, match="1 refusals, of 0 at most"):
            host.check()
        host.refusals = 1


def test_questions_are_as_many_as_a_person_acted() -> None:
    seen = attempts(_CODES)
    assert [one.asked for one in seen] == [True, False, True, False, False, True]
    assert Budget(accepted=1, failed=1, asked=3).overdrawn(seen) == []
    for asked in (2, 4):
        (wrong,) = Budget(accepted=1, failed=1, asked=asked).overdrawn(seen)
        assert wrong == f"3 questions for {asked} actions of a person"
