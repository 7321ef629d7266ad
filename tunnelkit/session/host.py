"""The session's ways to its users, which its process offers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tunnelkit.link.base import Prompter
from tunnelkit.session.files.mirror_json import Sending, Tell


@dataclass(frozen=True)
class SessionHost:
    """Functions by which a session reaches the commands that follow or watch it.

    prompter: asks the user. present: True if a command follows the session. say: sends the user a
    message. changed: called after each change of state. tell: sends an event of the mirror.
    sending: sends the progress of a big transfer.
    """

    prompter: Prompter
    say: Callable[[str], None]
    changed: Callable[[], None]
    present: Callable[[], bool] = lambda: True
    tell: Tell = lambda event: None
    sending: Sending = lambda progress: None
