"""The environment variables of the user's logins, which `tk auth` brings to the session.

They may be of a later login than the one that the session was started in.
"""

from __future__ import annotations

#: Name an agent, a Kerberos ticket, a display to ask on.
LOGIN_VARIABLES = ("SSH_AUTH_SOCK", "KRB5CCNAME", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY")
#: Of kubectl and its login plugins. ssh must not get them: SendEnv may name some.
KUBE_LOGIN_VARIABLES = (
    *("KUBECONFIG", "AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
    *("AWS_SESSION_TOKEN", "GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_CONFIG"),
    *("CLOUDSDK_ACTIVE_CONFIG_NAME", "AZURE_CONFIG_DIR"),
)


def login_variables(*, is_kubernetes: bool) -> tuple[str, ...]:
    """Return the names that a session of this kind takes over."""
    return LOGIN_VARIABLES + (KUBE_LOGIN_VARIABLES if is_kubernetes else ())
