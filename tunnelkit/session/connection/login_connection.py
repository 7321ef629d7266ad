"""The session's connection to the login host: made, kept, and who is asked for a secret."""

from __future__ import annotations

from collections.abc import Callable

from tunnelkit.config.schema import Settings
from tunnelkit.errors import TunnelkitError
from tunnelkit.link.base import Prompter
from tunnelkit.link.factory import make_link
from tunnelkit.session.connection.link_keeper import LinkKeeper
from tunnelkit.session.connection.probe import link_options
from tunnelkit.session.connection.prompt_gate import PromptGate
from tunnelkit.session.runtime.paths import SessionPaths


class LoginConnection:
    """Owns the link but for its end: `link.close`. `open`, then `run` beside all else.

    present: whether a command that could ask is connected. notice: something for the person.
    lost: told why, at each loss and each attempt that failed. changed: `stuck` is another.
    """

    def __init__(
        self,
        settings: Settings,
        paths: SessionPaths,
        *,
        prompter: Prompter,
        present: Callable[[], bool],
        notice: Callable[[str], None],
        lost: Callable[[str], None],
        changed: Callable[[], None],
    ) -> None:
        self._attendance = PromptGate(prompter, present)
        self._notice = notice
        self._told_lost = lost
        self._changed = changed
        #: Why the connection is not tried again until a person comes (`tk auth`).
        self.stuck: TunnelkitError | None = None
        self.link = make_link(
            settings.cluster.link,
            link_options(settings),
            control_dir=paths.link_dir,
            prompter=self._attendance.ask,
            attended=self._attendance.is_open,
            notice=notice,
        )
        self._keeper = LinkKeeper(self.link, lost=self._lost, stuck=self.on_stuck)

    @property
    def is_up(self) -> bool:
        """False from the moment a loss is known until the link is back."""
        return self._keeper.is_up

    async def open(self) -> None:
        """Connect for the first time. Raises as `Link.open`."""
        await self._keeper.open()

    async def run(self) -> None:
        """Bring it back whenever it is lost; never returns."""
        await self._keeper.run()

    async def wait_up(self) -> None:
        """Return once the link is there."""
        await self._keeper.wait_up()

    def arrive(self, *, coming: bool = False) -> None:
        """A person may be asked until `leave`; with `coming` also before their command has
        connected."""
        self._attendance.arrive(coming=coming)

    def leave(self) -> None:
        """The visit is over. Idempotent."""
        self._attendance.leave()

    def retry(self) -> None:
        """A person is there: whatever was stuck is tried now; what gets stuck from here on is
        this visit's."""
        self.on_stuck(None)
        self._keeper.retry()

    def on_stuck(self, error: TunnelkitError | None) -> None:
        """Only a person can bring the connection back: said once, wherever people look."""
        self.stuck = error
        if error is not None:
            # One action, one refusal: whoever visits has to decide anew.
            self._attendance.leave()
            self._notice(f"{error.one_line()}. Nothing is tried until you run: tk auth")
        self._changed()

    def _lost(self, why: str) -> None:
        if self._keeper.is_up:
            # What was answered is spent; asking for it again is a person's decision.
            self._attendance.leave()
        self._told_lost(why)
