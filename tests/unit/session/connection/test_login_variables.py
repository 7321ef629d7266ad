"""`tk auth` brings the variables of a login, of kubectl's only to where kubectl runs."""

from __future__ import annotations

from tunnelkit.session.connection.login_variables import login_variables


def test_ssh_gets_no_secret_of_a_cloud_login() -> None:
    assert "AWS_SESSION_TOKEN" in login_variables(is_kubernetes=True)
    assert "SSH_AUTH_SOCK" in login_variables(is_kubernetes=True)
    assert not [name for name in login_variables(is_kubernetes=False) if "AWS" in name]
