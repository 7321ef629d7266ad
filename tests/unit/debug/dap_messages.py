"""DAP messages as the tests of the view write and read them."""

from __future__ import annotations

import json
from typing import Any

from tunnelkit.debug.dap.session import DapSession

Message = dict[str, Any]


def said(message: Message) -> bytes:
    """A message as debugpy's adapter writes it."""
    return json.dumps(message).encode()


def said_by_vscode(message: Message) -> bytes:
    """A request as VS Code writes it: no spaces, command first, type and seq last."""
    order = ("command", "arguments", "type", "seq")
    ordered = {key: message[key] for key in order if key in message}
    return json.dumps(ordered, separators=(",", ":")).encode()


def request(seq: int, command: str, **arguments: Any) -> bytes:
    return said({"seq": seq, "type": "request", "command": command, "arguments": arguments})


def answer(request_seq: int, command: str, body: Message | None = None, seq: int = 7) -> bytes:
    message: Message = {
        "seq": seq,
        "type": "response",
        "request_seq": request_seq,
        "success": True,
        "command": command,
    }
    return said({**message, "body": body} if body is not None else message)


def event(name: str, body: Message | None = None, seq: int = 9) -> bytes:
    message: Message = {"seq": seq, "type": "event", "event": name}
    return said({**message, "body": body} if body is not None else message)


def output(text: str, category: str = "stdout", **more: Any) -> bytes:
    return event("output", {"output": text, "category": category, "source": {}, **more})


def read(bodies: list[bytes]) -> list[Message]:
    return [json.loads(body) for body in bodies]


def names(bodies: list[bytes]) -> list[str]:
    return [str(message.get("event") or message.get("command")) for message in read(bodies)]


def attached(view: DapSession, **arguments: Any) -> DapSession:
    """The view after an editor's whole handshake."""
    for body in (
        request(1, "initialize", clientID="vscode", clientName="Visual Studio Code"),
        request(2, "attach", **arguments),
        request(3, "configurationDone"),
    ):
        view.from_editor(body)
    return view
