"""The call of the control socket that has a script checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunnelkit.session.runtime.control_message import Request

if TYPE_CHECKING:
    from tunnelkit.simulate.finding import CheckAnswer


class CheckScript(Request["CheckAnswer"]):
    """Look at what a batch script, or a command (`words`), needs on the cluster.

    text, options, words: bytes, as Latin-1. here: the local directory. mem, cpus, time_s: asked for
    by tk's own options.
    """

    NAME = "check-script"
    name: str
    text: str
    options: list[str]
    words: list[str]
    here: str
    mem: str | None = None
    cpus: int | None = None
    time_s: int | None = None
