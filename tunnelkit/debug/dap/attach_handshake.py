"""Hears an editor until it says whom it wants to debug, answering `initialize` meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from tunnelkit.debug.dap.editor_port import Editor
from tunnelkit.debug.dap.peek import Message, parse
from tunnelkit.debug.dap.session import DapSession, MappedRoots
from tunnelkit.mux.dap_framing import DapError, encode, frame, response


@dataclass(frozen=True)
class AttachRequest:
    """The process that an editor wants: a rank, a child process of one, or (neither) the one of F5.

    request: its `attach`. opening: the messages to begin with at an adapter; None: no adapter has
    received it yet.
    """

    rank: int | None = None
    sub_process_id: int | None = None
    request: Message = field(default_factory=dict)
    opening: list[bytes] | None = None

    def for_rank(self, rank: int) -> AttachRequest:
        """The same at a rank's own port."""
        plain = self.rank is None and self.sub_process_id is None
        return replace(self, rank=rank) if plain else self


async def read_until_attach(
    editor: Editor, capabilities: dict[str, Any], mirror: MappedRoots | None
) -> AttachRequest | None:
    """Take an editor's messages up to its `attach`. None: it hung up or said goodbye.

    Afterwards `editor.view` knows the session so far, and the adapter's answers to what has
    been answered here will not reach the editor. Raises OSError if the editor is gone.
    """
    view = editor.view = DapSession(mirror)
    data, editor.early = editor.early, b""
    seq = 0
    request: Message = {}
    rest: list[bytes] = []
    while True:
        try:
            bodies = editor.frames.feed(data)
        except DapError:
            return None
        for body in bodies:
            if view.attached:
                rest += view.from_editor(body).to_adapter
                continue
            routed = view.from_editor(body)
            message = parse(body)
            if message.get("command") == "initialize":
                seq += 1
                answer = {**response(message), "seq": seq, "body": capabilities}
                view.answered.add(int(message.get("seq") or 0))
                await editor.send(encode(answer))
                editor.name = view.client_name
            await editor.send(b"".join(map(frame, routed.to_editor)))
            if view.over:
                return None
            if view.attached:
                rest = list(routed.to_adapter)
                request = message
        if view.attached:
            opening = [*view.next_adapter(), *rest]
            return AttachRequest(view.rank, view.sub_process_id, request, opening)
        data = await editor.receive()
        if not data:
            return None
