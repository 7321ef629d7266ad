"""`tk forward`."""

from __future__ import annotations

from typing import Annotated

import typer

from tunnelkit.cli import completion
from tunnelkit.cli.console import say


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("forward")(forward)


def forward(
    forwards: Annotated[
        list[str],
        typer.Argument(
            metavar="FORWARD",
            help="PORT, LOCAL:REMOTE or LOCAL:HOST:REMOTE.",
            autocompletion=completion.forwards,
        ),
    ],
    cancel: Annotated[bool, typer.Option("--cancel", help="Close them instead.")] = False,
    wire: Annotated[
        bool, typer.Option("--wire", help="Through the agent, not by OpenSSH.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """Make 127.0.0.1:LOCAL here reach the node's HOST:REMOTE.

    tk forward 8888
    tk forward 6006 8080:127.0.0.1:80
    tk forward --cancel 8888
    """
    from tunnelkit.cli.common import find_session, run
    from tunnelkit.model import LocalForward
    from tunnelkit.session import client

    wanted = [LocalForward.parse(text) for text in forwards]

    async def work() -> list[dict[str, object]]:
        answers = []
        async with client.connect(find_session()) as session:
            for one in wanted:
                if cancel:
                    await session.call("forward.cancel", port=one.bind_port)
                    answers.append({"forward": str(one), "cancelled": True})
                else:
                    answers.append(await session.call("forward.add", forward=str(one), wire=wire))
        return answers

    for answer in run(work()):
        if as_json:
            import json

            say(json.dumps(answer))
        elif cancel:
            say(f"{answer['forward']} closed")
        else:
            state = "ready" if answer["ready"] else "open, but nobody listens there yet"
            say(f"{answer['forward']} {state} (by {answer['route']})")
