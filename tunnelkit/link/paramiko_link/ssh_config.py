"""ssh_config for the paramiko link, read by paramiko's own parser.

Added here: the files in ssh's order, Include, the tokens that paramiko leaves as they
are, the way through ProxyJump hosts, and a refusal of keywords that do not exist.
"""

from __future__ import annotations

import getpass
import glob
import os
import re
import shlex
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from paramiko import SSHConfig, SSHConfigDict
from paramiko.ssh_exception import ConfigParseError, CouldNotCanonicalize

from tunnelkit.errors import ConfigError
from tunnelkit.link.paramiko_link.ssh_config_keywords import KEYWORDS
from tunnelkit.model import Hop

_LINE = re.compile(r"\s*(?P<keyword>\w+)(?:\s*=\s*|\s+)(?P<value>.*?)\s*$")
_DESTINATION = re.compile(
    r"(?:(?P<user>[^@]+)@)?(?:\[(?P<v6>[^\]]+)\]|(?P<host>[^:]+))(?::(?P<port>\d+))?"
)
_SYSTEM = Path("/etc/ssh/ssh_config")
_DEFAULT_KEYS = ("id_rsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk")
_MAX_INCLUDES = 16
_MAX_JUMPS = 8


@dataclass(frozen=True)
class HostConfig:
    """The part of ssh_config about one destination that this link uses.

    name: as the user calls it. address: the address to dial instead of its hostname.
    identity_agent: a socket's path, "" for none, None for SSH_AUTH_SOCK. strict:
    StrictHostKeyChecking, in one spelling each: yes, ask, accept-new, off.
    """

    name: str
    hostname: str
    port: int
    user: str
    strict: str
    known_hosts: tuple[Path, ...]
    address: str | None = None
    host_key_alias: str | None = None
    hash_known_hosts: bool = False
    identity_files: tuple[Path, ...] = ()
    certificate_files: tuple[Path, ...] = ()
    identities_only: bool = False
    identity_agent: str | None = None
    proxy_command: str | None = None
    proxy_jump: tuple[str, ...] = ()
    preferred: tuple[str, ...] = ()
    refused: frozenset[str] = frozenset()
    wants_gssapi: bool = False
    ciphers: str = ""

    @property
    def known_as(self) -> str:
        """The name under which known_hosts files hold this host."""
        if self.host_key_alias:
            return self.host_key_alias
        return self.hostname if self.port == 22 else f"[{self.hostname}]:{self.port}"


@dataclass(frozen=True)
class ConfigFiles:
    """The files of ssh_config to read: one file instead of ssh's own two, or those."""

    given: Path | None = None

    def lookup(self, destination: str, *, local_user_is: str | None = None) -> HostConfig:
        """The configuration for `host`, `user@host` or `user@host:port`. Raises ConfigError.
        local_user_is: the user where the files give none, or just the local one."""
        match = _DESTINATION.fullmatch(destination)
        if match is None:
            raise ConfigError(
                f"{destination!r} is not a destination for ssh",
                hint="give host, user@host, user@host:port or an alias from your ssh_config",
            )
        host = match["v6"] or match["host"]
        given = {"user": match["user"], "port": match["port"]}
        try:
            found = SSHConfig.from_text("\n".join(self._lines(host, given))).lookup(host)
            return _host_config(destination, host, found, local_user_is)
        except (ConfigParseError, CouldNotCanonicalize, ImportError, ValueError, KeyError) as error:
            raise ConfigError(
                f"the paramiko link can't read the ssh_config for {host}",
                cause=str(error),
                hint="correct that line, or use `--link openssh`",
            ) from error

    def way(self, login: str, jumps: Sequence[Hop] = ()) -> list[HostConfig]:
        """The hosts to go through, the last one being `login`. `jumps` stand for the ProxyJump
        of `login`; the first of them may have one of its own, as with ssh."""
        last = self.lookup(login)
        names = [jump.destination for jump in jumps] or list(last.proxy_jump)
        way = [*(self.lookup(name) for name in names), last]
        while way[0].proxy_jump and len(way) > 1:
            way[:0] = [self.lookup(name) for name in way[0].proxy_jump]
            if len(way) > _MAX_JUMPS:
                raise ConfigError(
                    f"the way to {login} has more than {_MAX_JUMPS} hosts",
                    cause=" then ".join(host.name for host in way),
                    hint="look for a ProxyJump in a circle in your ssh_config",
                )
        return way

    def _lines(self, host: str, given: dict[str, str | None]) -> Iterator[str]:
        for keyword, value in given.items():
            if value:
                yield f"{keyword} {value}"
        if self.given is not None:
            yield from _expanded(self.given, host, depth=0, must=True)
            return
        yield from _expanded(Path.home() / ".ssh" / "config", host, depth=0)
        yield "Host *"
        yield from _expanded(_SYSTEM, host, depth=0)


def _expanded(path: Path, host: str, *, depth: int, must: bool = False) -> Iterator[str]:
    """The lines of a file, with those of the files that it includes for `host`."""
    try:
        text = path.expanduser().read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        if must:
            raise ConfigError(
                f"can't read {path}", cause=error.strerror, hint="see [cluster] ssh_config"
            ) from error
        return
    header, ignored = "Host *", ""
    for number, line in enumerate(text.splitlines(), 1):
        match = _LINE.fullmatch(line)
        if match is None or line.lstrip().startswith("#"):
            yield line
            continue
        keyword = match["keyword"].lower()
        if keyword == "ignoreunknown":
            ignored = match["value"]
        elif keyword in ("host", "match"):
            header = line
        _check_keyword(keyword, ignored, path, number)
        if keyword != "include":
            yield line
        elif depth < _MAX_INCLUDES and _applies(header, host):
            for name in _included(match["value"], path):
                yield from _expanded(name, host, depth=depth + 1)
                yield header  # the included file may have begun blocks of its own


def _check_keyword(keyword: str, ignored: str, path: Path, line: int) -> None:
    if keyword in KEYWORDS:
        return
    patterns = [pattern.strip().lower() for pattern in ignored.split(",") if pattern.strip()]
    if any(re.fullmatch(glob_pattern(pattern), keyword) for pattern in patterns):
        return
    raise ConfigError(
        f"{path} is not a valid ssh_config",
        cause=f"line {line}: Bad configuration option: {keyword}",
        hint="correct that line or file, then try again",
    )


def glob_pattern(pattern: str) -> str:
    """ssh's wildcards `*` and `?` as a regular expression."""
    return "".join({"*": ".*", "?": "."}.get(char, re.escape(char)) for char in pattern)


def _applies(header: str, host: str) -> bool:
    """True if a Host or Match line holds for `host`, as paramiko judges it."""
    return "compression" in SSHConfig.from_text(f"{header}\n  Compression yes").lookup(host)


def _included(value: str, of: Path) -> list[Path]:
    base = _SYSTEM.parent if of.is_relative_to(_SYSTEM.parent) else Path.home() / ".ssh"
    paths = [str(base / Path(word).expanduser()) for word in shlex.split(value)]
    return [Path(found) for path in paths for found in sorted(glob.glob(path))]


def _host_config(
    destination: str, host: str, found: SSHConfigDict, local_user_is: str | None
) -> HostConfig:
    hostname, port = found["hostname"], int(found.get("port", 22))
    user = found.get("user") or getpass.getuser()
    if local_user_is and user == getpass.getuser():
        user = local_user_is
    tokens = {
        "%": "%",
        "h": hostname,
        "n": host,
        "p": str(port),
        "r": user,
        "u": getpass.getuser(),
        "d": str(Path.home()),
        "i": str(os.getuid()) if hasattr(os, "getuid") else "",
        "l": socket.gethostname(),
        "L": socket.gethostname().partition(".")[0],
        "k": found.get("hostkeyalias") or host,
    }

    def path(text: str) -> Path:
        return Path(expand(text, tokens)).expanduser()

    def files(key: str, default: str) -> list[Path]:
        words = shlex.split(found.get(key) or default)
        return [path(word) for word in words if word not in ("none", "/dev/null")]

    users = files("userknownhostsfile", "~/.ssh/known_hosts ~/.ssh/known_hosts2")
    system = files("globalknownhostsfile", "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2")
    keys = found.get("identityfile") or [f"~/.ssh/{name}" for name in _DEFAULT_KEYS]
    command, jumps = _proxy(found)
    return HostConfig(
        name=destination,
        hostname=hostname,
        port=port,
        user=user,
        strict=_strict(found.get("stricthostkeychecking", "ask")),
        known_hosts=(*users, *system),
        host_key_alias=found.get("hostkeyalias") or None,
        hash_known_hosts=found.get("hashknownhosts", "no").lower() == "yes",
        identity_files=tuple(path(name) for name in keys if name != "none"),
        certificate_files=tuple(files("certificatefile", "none")),
        identities_only=found.get("identitiesonly", "no").lower() == "yes",
        identity_agent=_identity_agent(found.get("identityagent"), tokens),
        proxy_command=command,
        proxy_jump=jumps,
        preferred=tuple(found.get("preferredauthentications", "").replace(",", " ").split()),
        refused=_refused(found),
        wants_gssapi=found.get("gssapiauthentication", "no").lower() == "yes",
        ciphers=found.get("ciphers", ""),
    )


def _identity_agent(given: str | None, tokens: dict[str, str]) -> str | None:
    if given is None or given == "SSH_AUTH_SOCK":
        return None
    if given in ("", "none"):
        return ""
    if given.startswith("$"):
        return os.environ.get(given.lstrip("$").strip("{}"), "")
    return str(Path(expand(given, tokens)).expanduser())


def _proxy(found: SSHConfigDict) -> tuple[str | None, tuple[str, ...]]:
    """ProxyCommand and ProxyJump: with ssh the one that stands first wins, `none` included."""
    # paramiko's dict keeps the order, and has None for `ProxyCommand none`.
    first = next((key for key in found if key in ("proxycommand", "proxyjump")), None)
    if first != "proxyjump":
        return found.get("proxycommand") or None, ()
    jump = found["proxyjump"]
    return None, () if jump.lower() == "none" else tuple(jump.split(","))


def _refused(found: SSHConfigDict) -> frozenset[str]:
    """Methods that the user's config turns off."""
    switches = {
        "publickey": "pubkeyauthentication",
        "password": "passwordauthentication",
        "keyboard-interactive": "kbdinteractiveauthentication",
    }
    return frozenset(
        method for method, key in switches.items() if found.get(key, "yes").lower() == "no"
    )


def _strict(value: str) -> str:
    value = value.lower()
    return {"true": "yes", "no": "off", "false": "off"}.get(value, value)


def expand(text: str, tokens: dict[str, str]) -> str:
    """`text` with its %-tokens and ${VARIABLES} replaced; unknown ones stay."""
    text = re.sub(r"%(.)", lambda match: tokens.get(match[1], match[0]), text)
    return re.sub(r"\$\{(\w+)\}", lambda match: os.environ.get(match[1], match[0]), text)
