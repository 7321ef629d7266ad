"""The host keys that tk trusts, on top of the user's ssh_config.

The user's setting holds, with two exceptions. A compute node that none of the user's files knows is
accepted on first sight, into tunnelkit's own known_hosts (nodes come and go, and are reached
through a host that is checked). And `StrictHostKeyChecking no` is tightened to `accept-new`: a
changed key is always a hard stop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tunnelkit.child_process import run_child
from tunnelkit.errors import ConnectionFailed
from tunnelkit.link.shared.diagnosis import diagnose
from tunnelkit.model import Completed

_CONFIG_TIMEOUT_S = 20.0
_KEYGEN_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class EffectiveConfig:
    """The lines of `ssh -G` for one destination that tk uses."""

    hostname: str
    port: int
    strict: str
    known_hosts: tuple[str, ...]
    host_key_alias: str | None
    user: str = ""
    ciphers: str = ""
    is_direct: bool = True
    uses_gssapi: bool = False
    #: All that doesn't say which host it is.
    rest: frozenset[str] = frozenset()

    @staticmethod
    def parse(text: str) -> EffectiveConfig:
        """Read the output of `ssh -G`: one lower-case keyword and its value a line."""
        values: dict[str, str] = {}
        for line in text.splitlines():
            keyword, _, value = line.partition(" ")
            values.setdefault(keyword, value)
        files = f"{values.get('userknownhostsfile', '')} {values.get('globalknownhostsfile', '')}"
        port = values.get("port", "22")
        return EffectiveConfig(
            hostname=values.get("hostname", ""),
            port=int(port) if port.isdigit() else 22,
            strict=values.get("stricthostkeychecking", "ask"),
            known_hosts=tuple(name for name in files.split() if name not in ("/dev/null", "none")),
            host_key_alias=values.get("hostkeyalias") or None,
            user=values.get("user", ""),
            ciphers=values.get("ciphers", ""),
            is_direct=not {"proxyjump", "proxycommand"} & {*values},
            uses_gssapi=values.get("gssapiauthentication") == "yes",
            rest=frozenset(
                line
                for line in text.splitlines()
                if line.partition(" ")[0] not in ("host", "hostname", "hostkeyalias")
            ),
        )

    @property
    def known_as(self) -> str:
        """The name under which known_hosts files hold this host."""
        if self.host_key_alias:
            return self.host_key_alias
        return self.hostname if self.port == 22 else f"[{self.hostname}]:{self.port}"

    def known_hosts_files(self) -> list[Path]:
        """The user's and the system's known_hosts files that exist."""
        paths = [Path(name).expanduser() for name in self.known_hosts]
        return [path for path in paths if path.is_file()]

    @property
    def is_strict(self) -> bool:
        """True if an unknown host key is refused without a question."""
        return self.strict in ("yes", "true")

    @property
    def is_off(self) -> bool:
        """True if the user has turned the check of host keys off."""
        return self.strict in ("no", "false", "off")


async def _run(argv: Sequence[str], host: str, timeout_s: float) -> Completed:
    """A program of this computer. Raises ConnectionFailed if it is late: a disk that stands
    still must not end the attempts to connect."""
    try:
        return await run_child(argv, timeout_s=timeout_s)
    except TimeoutError as error:
        raise ConnectionFailed(
            f"can't connect to {host} now",
            cause=f"{argv[0]} on this computer took more than {timeout_s:.0f} s",
            transient=True,
            hint="tk tries again; does `ssh -G` hang in a terminal, too?",
        ) from error


async def effective_config(argv: Sequence[str], host: str) -> EffectiveConfig:
    """Run `ssh -G` (`argv`). Raises ConfigError or ConnectionFailed if ssh refuses."""
    done = await _run(argv, host, _CONFIG_TIMEOUT_S)
    if done.exit_code != 0:
        raise diagnose(host, done.error_text)
    return EffectiveConfig.parse(done.text)


async def login_options(config: EffectiveConfig, *, own: Path) -> list[str]:
    """ssh options for the login host: the user's config, but never without any check."""
    if not config.is_off:
        return []
    _create(own)
    return _options("accept-new", [own, *config.known_hosts_files()])


async def node_options(config: EffectiveConfig, *, alias: str, own: Path) -> list[str]:
    """ssh options for a compute node. `alias` names it in `own`, apart from other clusters'."""
    if config.is_strict:
        return []
    if await _is_known(config):
        return ["-o", "StrictHostKeyChecking=accept-new"] if config.is_off else []
    _create(own)
    return [*_options("accept-new", [own]), "-o", f"HostKeyAlias={alias}"]


async def _is_known(config: EffectiveConfig) -> bool:
    for path in config.known_hosts_files():
        argv = ["ssh-keygen", "-F", config.known_as, "-f", str(path)]
        found = await _run(argv, config.known_as, _KEYGEN_TIMEOUT_S)
        if found.exit_code == 0:
            return True
    return False


def _create(path: Path) -> None:
    """Make tunnelkit's known_hosts before ssh would, which leaves it to the umask."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(mode=0o600)


def _options(strict: str, files: Sequence[Path]) -> list[str]:
    # New keys go to the first file; the value is a list of words with % tokens.
    quoted = " ".join('"{}"'.format(str(path).replace("%", "%%")) for path in files)
    return ["-o", f"StrictHostKeyChecking={strict}", "-o", f"UserKnownHostsFile={quoted}"]
