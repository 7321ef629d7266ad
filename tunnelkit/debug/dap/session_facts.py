"""Facts that one editor session has shown about itself, for its router."""

from __future__ import annotations

from typing import NamedTuple

from tunnelkit.debug.dap.peek import Message, section, whole

#: Our own key in a child session's attach arguments: the rank that it is for.
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


class SessionFacts:
    """The session so far. Attributes are for reading; View keeps them."""

    def __init__(self) -> None:
        #: The first request of the session: what a refusal answers.
        self.first: Message = {}
        self.client_id = ""
        self.client_name = "an editor"
        self.supports_start_debugging = False
        #: `attach` (or `launch`) was asked for; its arguments as the adapter gets them.
        self.attached = False
        self.attach_command = ""
        self.attach_seq = 0
        self.attach_arguments: Message = {}
        #: The process that a child session is for; None: this is no child session.
        self.sub_process_id: int | None = None
        #: The rank that a session is for (RANK_KEY); None: it did not say.
        self.rank: int | None = None
        self.configuration_done = False
        #: The editor's goodbye; None: it has not said one.
        self.goodbye: EndRequest | None = None
        #: The session has been answered here and needs no adapter any more.
        self.over = False
        self.children: list[Child] = []
        #: What went to the adapter before `attach`.
        self.said: list[bytes] = []
        #: Requests that were answered before the program began.
        self.answered: set[int] = set()

    def _note_initialize(self, message: Message) -> None:
        arguments = section(message, "arguments")
        self.client_id = _text(arguments.get("clientID"))
        self.client_name = _text(arguments.get("clientName")) or self.client_id or self.client_name
        self.supports_start_debugging = arguments.get("supportsStartDebuggingRequest") is True

    def _note_attach(self, message: Message, arguments: Message) -> None:
        self.attached = True
        self.attach_command = _text(message.get("command"))
        self.attach_seq = whole(message.get("seq")) or 0
        self.attach_arguments = arguments
        self.sub_process_id = whole(arguments.get("subProcessId"))
        self.rank = whole(arguments.get(RANK_KEY))

    def _note_goodbye(self, message: Message) -> None:
        arguments = section(message, "arguments")
        terminate = arguments.get("terminateDebuggee")
        self.goodbye = EndRequest(
            _text(message.get("command")),
            terminate if isinstance(terminate, bool) else None,
            arguments.get("restart") is True,
        )

    def _note_child(self, configuration: Message) -> None:
        pid = whole(configuration.get("subProcessId"))
        if pid is not None:
            self.children.append(Child(pid, _text(configuration.get("name"))))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
