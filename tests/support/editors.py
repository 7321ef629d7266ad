"""What an editor was told: the words and events of a debug session."""

from __future__ import annotations

from typing import Any

from tunnelkit.demo.dap_client import DapClient, Message


def said(editor: DapClient, *categories: str) -> str:
    """All output that the editor has been given so far, of these categories (none: all)."""
    bodies = [event["body"] for event in editor.events if event.get("event") == "output"]
    return "".join(
        str(body["output"])
        for body in bodies
        if not categories or body.get("category", "console") in categories
    )


def names(editor: DapClient) -> list[str]:
    """The events that were not waited for, in their order."""
    return [str(event["event"]) for event in editor.events]


async def locals_of(editor: DapClient, frame: Message) -> dict[str, str]:
    """The local variables of a frame, as the editor's panel shows them."""
    scopes = (await editor.request("scopes", frameId=frame["id"]))["scopes"]
    listed: dict[str, Any] = await editor.request(
        "variables", variablesReference=scopes[0]["variablesReference"]
    )
    return {one["name"]: one["value"] for one in listed["variables"]}
