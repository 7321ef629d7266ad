"""`tk auth` brings the variables of a login, of kubectl's only to where kubectl runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tunnelkit.session.connection.login_variables import login_variables
from tunnelkit.session.runtime import control_client


def test_ssh_gets_no_secret_of_a_cloud_login() -> None:
    assert "AWS_SESSION_TOKEN" in login_variables(is_kubernetes=True)
    assert "SSH_AUTH_SOCK" in login_variables(is_kubernetes=True)
    assert not [name for name in login_variables(is_kubernetes=False) if "AWS" in name]


def test_relative_kubeconfigs_are_those_of_the_users_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session's own directory is another one: it said that the context is not there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(("kube.conf", "/etc/kube", "", "../b")))
    wanted = (f"{tmp_path}/kube.conf", "/etc/kube", "", f"{tmp_path.parent}/b")
    assert control_client._environment()["KUBECONFIG"] == os.pathsep.join(wanted)
    monkeypatch.delenv("KUBECONFIG")
    assert "KUBECONFIG" not in control_client._environment()
