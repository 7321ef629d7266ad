"""Reads an editor's messages until it names the process that it wants to debug."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tunnelkit.debug.dap.editor_port import Editor
from tunnelkit.debug.dap.messages import Message
from tunnelkit.mux.dap_framing import frame


@dataclass(frozen=True)
class AttachRequest:
    """The process that an editor wants: a rank, a child process of one, or (neither) the one of F5.

    request: its `attach`; None: nothing has been read of the editor. opening: the messages to begin
    with at an adapter; None: no adapter has received it yet.
    """

    rank: int | None = None
    sub_process_id: int | None = None
    request: Message | None = None
    opening: list[bytes] | None = None

    def for_rank(self, rank: int) -> AttachRequest:
        """Return the same at a rank's own port."""
        return replace(self, rank=rank) if self.rank is None else self


async def read_until_attach(editor: Editor) -> AttachRequest | None:
    """Take an editor's messages up to its `attach`. None: it hung up or said goodbye.

    The editor's session must be able to answer `initialize` (DapSession.prepare). The adapter's
    own answers to what was answered here will not reach the editor. Raises OSError if the editor is
    gone.
    """
    session = editor.session
    rest: list[bytes] = []
    while not session.facts.attached:
        bodies = await editor.receive()
        if not bodies:
            return None
        for body in bodies:
            routed = session.from_editor(body)
            await editor.send(b"".join(map(frame, routed.to_editor)))
            if session.facts.over:
                return None
            if session.facts.attached:
                rest += routed.to_adapter
    facts = session.facts
    opening = [*session.next_adapter(), *rest]
    return AttachRequest(facts.rank, facts.sub_process_id, facts.attach, opening)
