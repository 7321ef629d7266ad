"""`tk forward`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

from tunnelkit.cli.completion import sources
from tunnelkit.cli.lazy_typer import typer
from tunnelkit.cli.terminal.output import say

if TYPE_CHECKING:
    from tunnelkit.model import LocalForward
    from tunnelkit.session.runtime.control_answers import ForwardAnswer

_ROUTES = {
    "login": "ssh, ends on the login host",
    "node": "ssh to the node",
    "chain": "ssh by way of the login host",
    "wire": "tk's own connection to the node",
    "lost": "not in place now",
    "none": "the node is this machine: it is the same port",
}


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

    tk forward 8888                    127.0.0.1:8888 here is the node's port 8888
    tk forward 6006 8080:127.0.0.1:80  two at once
    tk forward --cancel 8888
    tk forward                         list them
    """
    from tunnelkit.cli.terminal.context import run
    from tunnelkit.errors import UsageError
    from tunnelkit.model import LocalForward

    if not forwards:
        if cancel:
            raise UsageError("no forward named", hint="tk forward --cancel PORT")
        _list(as_json)
        return
    wanted = [LocalForward.parse(text) for text in forwards]

    if cancel:
        run(_close(wanted))
        for one in wanted:
            gone = {"forward": str(one), "cancelled": True}
            say(json.dumps(gone) if as_json else f"{one} closed")
        return
    for answer in run(_open(wanted, wire=wire, shared=shared)):
        state = "ready" if answer["ready"] else "open, but nobody listens there yet"
        text = f"{answer['forward']} {state} ({_how(answer['route'])})"
        say(json.dumps(answer) if as_json else text)


async def _open(wanted: list[LocalForward], *, wire: bool, shared: bool) -> list[ForwardAnswer]:
    from tunnelkit.cli.terminal.context import find_session
    from tunnelkit.session.runtime import control_client
    from tunnelkit.session.runtime.control_calls import ForwardAdd

    async with control_client.connect(find_session()) as session:
        return [
            await session.call(ForwardAdd(forward=str(one), wire=wire, shared=shared))
            for one in wanted
        ]


async def _close(wanted: list[LocalForward]) -> None:
    from tunnelkit.cli.terminal.context import find_session
    from tunnelkit.session.runtime import control_client
    from tunnelkit.session.runtime.control_calls import ForwardCancel

    async with control_client.connect(find_session()) as session:
        for one in wanted:
            await session.call(ForwardCancel(port=one.bind_port))


def _list(as_json: bool) -> None:
    from tunnelkit.cli.terminal.context import find_session
    from tunnelkit.session.runtime.blocking_client import ask
    from tunnelkit.session.runtime.control_calls import Status

    found = ask(find_session(), Status())["forwards"]
    if as_json:
        say(json.dumps(found))
    elif not found:
        say("no forwards: tk forward PORT opens one")
    else:
        for one in found:
            shared = ", for all users of this machine" if one.get("shared") else ""
            say(f"{one['forward']} ({_how(one['route'])}{shared})")


def _how(route: str) -> str:
    return _ROUTES.get(route, f"by {route}")
