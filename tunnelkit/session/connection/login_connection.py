"""The session's connection to the cluster: opens it, keeps it, and gates its prompts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

from tunnelkit.config.schema import Settings
from tunnelkit.errors import TunnelkitError
from tunnelkit.link.base import LinkSetup, Prompter
from tunnelkit.session.backends.backend import Backend
from tunnelkit.session.connection.link_keeper import LinkKeeper
from tunnelkit.session.connection.prompt_gate import PromptGate
from tunnelkit.session.runtime.paths import SessionPaths, patient_logins

#: The part whose attempts have stopped.
Waiting = Literal["link", "agent"]


class LoginConnection:
    """The link, its keeper and the gate of its prompts; the caller calls `link.close`.

    present: returns True while a command is connected that could prompt the user.
    asks_nodes: see LinkSetup.
    notice: called with a message for the user.
    lost: called with the reason, and its error if there is one, at each loss and each failed
    attempt.
    changed: called when `stuck` has changed.
    """

    def __init__(
        self,
        backend: Backend,
        settings: Settings,
        paths: SessionPaths,
        *,
        prompter: Prompter,
        present: Callable[[], bool],
        asks_nodes: Callable[[], bool],
        notice: Callable[[str], None],
        lost: Callable[[str, TunnelkitError | None], None],
        changed: Callable[[], None],
    ) -> None:
        #: Call its `arrive` when a user comes, `leave` when the visit is over.
        self.gate = PromptGate(prompter, present)
        self._notice = notice
        self._on_lost = lost
        self._changed = changed
        self._stuck: dict[Waiting, TunnelkitError] = {}
        self.link = backend.make_link(
            settings,
            LinkSetup(
                paths.link_dir,
                prompter=self.gate.ask,
                attended=self.gate.is_open,
                asks_nodes=asks_nodes,
                notice=notice,
                patient_logins=patient_logins(),
            ),
        )
        self.keeper = LinkKeeper(self.link, lost=self._lost, stuck=partial(self.on_stuck, "link"))

    @property
    def stuck(self) -> TunnelkitError | None:
        """The error after which attempts stop until the user runs `tk auth`; None without one."""
        return next(iter(self._stuck.values()), None)

    def retry(self) -> None:
        """Clear `stuck` and retry now, for a present user; a later `stuck` is from this visit."""
        self._stuck.clear()
        self._changed()
        self.keeper.retry()

    def on_stuck(self, waiting: Waiting, error: TunnelkitError | None) -> None:
        """Set or clear what `waiting` is stuck with; the link's return says nothing about the
        agent. An error is reported once, as only the user can fix it."""
        self._stuck.pop(waiting, None)
        if error is not None:
            self._stuck[waiting] = error
            # At most one refusal per user action: the user must decide to try again.
            self.gate.leave()
            self._notice(f"{error.one_line()}. Nothing is tried until you run: tk auth")
        self._changed()

    def _lost(self, why: str, error: TunnelkitError | None) -> None:
        if self.keeper.is_up:
            # The answers are used up. A new prompt needs a new action of the user.
            self.gate.leave()
        self._on_lost(why, error)
