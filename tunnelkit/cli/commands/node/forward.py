"""`tk forward`."""

from __future__ import annotations

from typing import Annotated

from tunnelkit.cli.completion import sources
from tunnelkit.cli.lazy_typer import typer
from tunnelkit.cli.terminal.output import say

_ROUTES = {
    "login": "ssh, ends on the login host",
    "node": "ssh to the node",
    "chain": "ssh by way of the login host",
    "wire": "tk's own connection to the node",
    "none": "the node is this machine: it is the same port",
}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("forward")(forward)


def forward(
    forwards: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FORWARD",
            help="PORT, LOCAL:REMOTE or LOCAL:HOST:REMOTE; without: list them.",
            autocompletion=sources.forwards,
        ),
    ] = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="Close them instead.")] = False,
    wire: Annotated[
        bool, typer.Option("--wire", help="Through the agent, not by OpenSSH.")
    ] = False,
    shared: Annotated[
        bool, typer.Option("--shared", help="For other users of this machine too.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """Make 127.0.0.1:LOCAL here reach the node's HOST:REMOTE.

    tk forward 8888
    tk forward 6006 8080:127.0.0.1:80
    tk forward --cancel 8888
    tk forward                     which there are
    """
    from tunnelkit.cli.terminal.context import find_session, run
    from tunnelkit.errors import UsageError
    from tunnelkit.model import LocalForward
    from tunnelkit.session.runtime import control_client

    if not forwards:
        if cancel:
            raise UsageError("no forward named", hint="tk forward --cancel PORT")
        _list(as_json)
        return
    wanted = [LocalForward.parse(text) for text in forwards]

    async def work() -> list[dict[str, object]]:
        answers = []
        async with control_client.connect(find_session()) as session:
            for one in wanted:
                if cancel:
                    await session.call("forward.cancel", port=one.bind_port)
                    answers.append({"forward": str(one), "cancelled": True})
                else:
                    answer = await session.call(
                        "forward.add", forward=str(one), wire=wire, shared=shared
                    )
                    answers.append(answer)
        return answers

    for answer in run(work()):
        if as_json:
            import json

            say(json.dumps(answer))
        elif cancel:
            say(f"{answer['forward']} closed")
        else:
            state = "ready" if answer["ready"] else "open, but nobody listens there yet"
            say(f"{answer['forward']} {state} ({_how(answer['route'])})")


def _list(as_json: bool) -> None:
    import json

    from tunnelkit.cli.terminal.context import find_session
    from tunnelkit.session.runtime.blocking_client import ask

    found = ask(find_session(), "status")["forwards"]
    if as_json:
        say(json.dumps(found))
    elif not found:
        say("no forwards: tk forward PORT opens one")
    else:
        for one in found:
            shared = ", for all users of this machine" if one.get("shared") else ""
            say(f"{one['forward']} ({_how(one['route'])}{shared})")


def _how(route: object) -> str:
    return _ROUTES.get(str(route), f"by {route}")
