"""`tk auth`: the user answers the prompts of a reconnect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunnelkit.cli.terminal.output import note

if TYPE_CHECKING:
    from tunnelkit.session.runtime.paths import SessionPaths
    from tunnelkit.session.runtime.status import SessionStatus


def auth() -> None:
    """Answer the password, code or touch that a reconnect needs.

    A session brings its connection back by itself as long as nobody has to be
    asked. Where somebody has to be, it tries nothing until you run this, and then
    asks once: a wrong answer is another `tk auth`. Job, debug session and local
    ports wait meanwhile.

    tk auth
    """
    from tunnelkit.cli.terminal.context import find_session, run

    status = run(_auth(find_session()))
    note(f"connected to {status['login']}: {status['state']}")


async def _auth(paths: SessionPaths) -> SessionStatus:
    import os

    from tunnelkit.cli.views.startup import Follower
    from tunnelkit.session.connection.login_variables import login_variables
    from tunnelkit.session.runtime.control_calls import Auth
    from tunnelkit.session.runtime.control_client import kubeconfig_files

    names = login_variables(is_kubernetes=True)  # the session takes those of its kind
    env = {name: os.environ[name] for name in names if name in os.environ}
    if files := env.get("KUBECONFIG"):
        env["KUBECONFIG"] = kubeconfig_files(files)
    follower = Follower(paths, may_cancel=False, call=Auth(env=env))
    with follower.minding_interrupts():
        return await follower.follow()
