"""Facts that an editor's session has shown about itself."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tunnelkit.debug.dap.messages import Message, section, text, whole

#: tk's own key in a child session's attach arguments: the rank that it is for.
RANK_KEY = "tkRank"


class EndRequest(NamedTuple):
    """The editor's `disconnect` or `terminate`. terminate_debuggee: None if it did not say."""

    command: str
    terminate_debuggee: bool | None = None
    restart: bool = False

    @property
    def ends_debuggee(self) -> bool:
        """True if it asks for the program's end.

        Without a setting, `disconnect` lets it run on (as one that was attached to).
        """
        return self.command == "terminate" or self.terminate_debuggee is True


class Child(NamedTuple):
    """A child process that the adapter announced to the editor."""

    pid: int
    name: str


@dataclass(frozen=True)
class SessionFacts:
    """A session so far; its DapSession replaces it at each change.

    attach: the editor's `attach` request with the arguments that the adapter gets; None before.
    sub_process_id: the process that a child session is for; None: it is no child session.
    rank: the rank that a session names (RANK_KEY); None: it names none. goodbye: the editor's last
    request; None before. over: tk has ended the session itself, it needs no adapter any more.
    """

    client_id: str = ""
    client_name: str = "an editor"
    supports_start_debugging: bool = False
    attach: Message | None = None
    sub_process_id: int | None = None
    rank: int | None = None
    configuration_done: bool = False
    goodbye: EndRequest | None = None
    over: bool = False
    children: tuple[Child, ...] = field(default=())

    @property
    def attached(self) -> bool:
        """True once the editor has asked for `attach`."""
        return self.attach is not None

    @property
    def has_program(self) -> bool:
        """True for a session of the program itself, not of a child process of it."""
        return self.attach is not None and self.sub_process_id is None

    @property
    def lets_go(self) -> bool:
        """True if the editor has said goodbye and lets the program run on."""
        return self.goodbye is not None and not self.goodbye.ends_debuggee

    @property
    def disconnected(self) -> bool:
        """True after a `disconnect`."""
        return self.goodbye is not None and self.goodbye.command == "disconnect"

    @property
    def attach_arguments(self) -> Message:
        """The arguments of `attach` as the adapter gets them; {} before."""
        return section(self.attach or {}, "arguments")

    @property
    def redirects_output(self) -> bool:
        """True if its output is what the program writes.

        Otherwise it is that of log points, which the program never writes."""
        arguments = self.attach_arguments
        options = arguments.get("debugOptions")
        listed = isinstance(options, list) and "RedirectOutput" in options
        return listed or arguments.get("redirectOutput") is True

    def with_client(self, initialize: Message) -> SessionFacts:
        """Add the client that an `initialize` describes."""
        arguments = section(initialize, "arguments")
        client_id = text(arguments.get("clientID"))
        return replace(
            self,
            client_id=client_id,
            client_name=text(arguments.get("clientName")) or client_id or self.client_name,
            supports_start_debugging=arguments.get("supportsStartDebuggingRequest") is True,
        )

    def with_attach(self, attach: Message) -> SessionFacts:
        """Add the `attach` request."""
        arguments = section(attach, "arguments")
        return replace(
            self,
            attach=attach,
            sub_process_id=whole(arguments.get("subProcessId")),
            rank=whole(arguments.get(RANK_KEY)),
        )

    def with_goodbye(self, request: Message) -> SessionFacts:
        """Add the editor's `disconnect` or `terminate`."""
        arguments = section(request, "arguments")
        terminate = arguments.get("terminateDebuggee")
        goodbye = EndRequest(
            text(request.get("command")),
            terminate if isinstance(terminate, bool) else None,
            arguments.get("restart") is True,
        )
        return replace(self, goodbye=goodbye)

    def with_child(self, configuration: Message) -> SessionFacts:
        """Add the child process of an attach configuration, if it names one."""
        pid = whole(configuration.get("subProcessId"))
        if pid is None:
            return self
        return replace(self, children=(*self.children, Child(pid, text(configuration.get("name")))))
