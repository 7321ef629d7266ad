"""The argv of every ssh that the OpenSSH link starts. No I/O.

Three kinds: a master (authenticates, once), a session (a command over a master,
never able to fall back to a connection of its own), and a control request (`-O`).
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from tunnelkit.link.options import LinkOptions, destination_words
from tunnelkit.model import Hop

#: What the master says once it is authenticated and listens on its control socket.
READY = "tunnelkit-ready"


class SshCommand:
    """Builds argv for one set of options."""

    def __init__(self, options: LinkOptions, *, batch: bool) -> None:
        self._options = options
        self._batch = batch

    def master(
        self, control_path: Path, destination: str, *, extra: Sequence[str] = ()
    ) -> list[str]:
        """A ControlMaster that says READY on stdout. `extra` options win over all others."""
        return [
            *self._ssh(),
            *extra,
            *self._connecting(),
            *("-M", "-N", "-S", _percent(str(control_path))),
            # LocalCommand runs right after the control socket is there: the one event
            # that tells so without a wait, and it keeps the user's own from running.
            *_options("PermitLocalCommand=yes", f"LocalCommand=echo {READY}"),
            *_options("ControlPersist=no", "ClearAllForwardings=yes", "LogLevel=INFO"),
            *_options("StreamLocalBindUnlink=yes", "RemoteCommand=none"),
            *destination_words(destination),
        ]

    def jump_option(self) -> list[str]:
        """`jumps` as an option of the login master.

        Spelled as nested ProxyCommands instead of `-J`, which would not pass
        ConnectTimeout, BatchMode and the rest on to the hops.
        """
        if not self._options.jumps:
            return []
        return _options(f"ProxyCommand={self._through(self._options.jumps)}")

    def _through(self, jumps: Sequence[Hop]) -> str:
        """A ProxyCommand text; its own `%h` and `%p` are for the ssh that runs it."""
        *before, last = jumps
        words = [
            *self._ssh(),
            *(_options(f"ProxyCommand={self._through(before)}") if before else ()),
            *self._connecting(),
            *_options("PermitLocalCommand=no", "ControlMaster=no", "RemoteCommand=none"),
        ]
        target = shlex.join(destination_words(last.destination))
        return f"{_percent(shlex.join(words))} -W '[%h]:%p' {_percent(target)}"

    def through_master(self, control_path: Path) -> list[str]:
        """The option that makes a node's master ride on the login master."""
        words = _percent(shlex.join(self.control(control_path)))
        login = _percent(shlex.join(destination_words(self._options.login.destination)))
        return _options(f"ProxyCommand={words} -W '[%h]:%p' {login}")

    def session(self, control_path: Path) -> list[str]:
        """ssh over a master, without destination: for commands, rsync and sshfs."""
        return [
            *self._ssh(),
            *("-S", _percent(str(control_path)), "-T", "-a", "-x"),
            # Without a mux session ssh would connect, and authenticate, a second time.
            *_options("ControlMaster=no", "ProxyCommand=/bin/false", "BatchMode=yes"),
            # The user's LocalForward lines would else be asked of the master each time.
            *_options("ClearAllForwardings=yes", "PermitLocalCommand=no", "RemoteCommand=none"),
            *_options("EscapeChar=none"),
        ]

    def control(self, control_path: Path) -> list[str]:
        """ssh for `-O` and `-W` over a master, without destination.

        `-F none`, since `-O forward` would add the LocalForward lines of ssh_config.
        """
        return [
            *(self._options.ssh, "-F", "none", "-S", _percent(str(control_path))),
            *_options("ControlMaster=no", "ProxyCommand=/bin/false", "BatchMode=yes"),
        ]

    def print_config(self, destination: str) -> list[str]:
        """`ssh -G`: the configuration that holds for a destination."""
        return [*self._ssh(), "-G", *destination_words(destination)]

    def _ssh(self) -> list[str]:
        config = self._options.ssh_config
        return [self._options.ssh, *(("-F", str(config)) if config else ())]

    def _connecting(self) -> list[str]:
        options = self._options
        return [
            *("-T", "-a", "-x"),
            *_options(
                f"ConnectTimeout={options.connect_timeout_s}",
                f"ServerAliveInterval={options.alive_interval_s}",
                f"ServerAliveCountMax={options.alive_count_max}",
                f"BatchMode={'yes' if self._batch else 'no'}",
                "NumberOfPasswordPrompts=1",
                "EscapeChar=none",
            ),
        ]


def _options(*settings: str) -> list[str]:
    return [word for setting in settings for word in ("-o", setting)]


def _percent(text: str) -> str:
    """Text that ssh's percent expansion turns back into `text`."""
    return text.replace("%", "%%")
