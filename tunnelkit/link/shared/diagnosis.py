"""Error messages from ssh's stderr: what failed, where, why, what to do next."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

from tunnelkit.errors import (
    AuthenticationFailed,
    ConfigError,
    ConnectionFailed,
    ConnectionThrottled,
    HostKeyError,
    TunnelkitError,
    UnknownHostKey,
)

_Make = Callable[[str, "re.Match[str]"], TunnelkitError]


def diagnose(host: str, text: str) -> TunnelkitError:
    """The error behind an ssh that ended without a connection to `host`.

    `text` is its stderr. What a hop on the way said is recognised alike, since every
    message of ssh names its host.
    """
    text = text.replace("\r", "")
    for pattern, make in _RULES:
        match = re.search(pattern, text, re.MULTILINE)
        if match:
            return make(host, match)
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("@")]
    return ConnectionFailed(
        f"no connection to {host}",
        cause=lines[-1].strip() if lines else "ssh ended without a word",
        hint=f"see what `ssh {host}` says",
        transient=True,
    )


def _changed_key(host: str, match: re.Match[str]) -> TunnelkitError:
    text = match.string
    offered = _find(r"^(SHA256:\S+?)\.?$", text) or "unknown"
    where = re.search(r"^Offending \S+ key in (.+):(\d+)$", text, re.MULTILINE)
    named = _find(r"^Host key for (\S+) has changed", text) or host
    if where is None:
        return changed_key(both_names(host, named), "unknown", offered)
    path, line = where[1], int(where[2])
    known = f"{fingerprint_at(Path(path), line) or 'unknown'} ({path}:{line})"
    return changed_key(both_names(host, named), known, offered, remove=(named, path))


def changed_key(
    host: str, known: str, offered: str, *, remove: tuple[str, str] | None = None
) -> HostKeyError:
    """The error for a host with another key than the known one: fingerprints. remove: the name
    and the file of the known one's line."""
    then = ""
    if remove is not None:
        name, file = map(shlex.quote, remove)
        then = f", then: ssh-keygen -R {name} -f {file}"
    return HostKeyError(
        f"the host key of {host} has changed: known is {known}, offered is {offered}",
        cause="either the host was reinstalled, or someone intercepts the connection",
        hint=f"compare the offered fingerprint with what the site's admins publish{then}",
    )


def _revoked_key(host: str, match: re.Match[str]) -> TunnelkitError:
    return revoked_key(host, match[0].strip())


def revoked_key(named: str, cause: str) -> HostKeyError:
    """The error for a host with a key that known_hosts revokes."""
    return HostKeyError(
        f"the host key of {named} is revoked",
        cause=cause,
        hint="ask the site's admins before you go on",
    )


def _unknown_key(host: str, match: re.Match[str]) -> TunnelkitError:
    return unknown_key(host, host, match[0].strip())


def _refused_key(host: str, match: re.Match[str]) -> TunnelkitError:
    return unknown_key(host, both_names(host, match["named"]), match[0].strip(), strict=True)


def unknown_key(host: str, named: str, cause: str, *, strict: bool = False) -> HostKeyError:
    """The error for a host whose key nobody has accepted. named: `host` with its other name.
    strict: ssh_config forbids to accept it; then it is an UnknownHostKey."""
    message = f"the host key of {named} is not known"
    if strict:
        return UnknownHostKey(
            message,
            cause=cause,
            hint="StrictHostKeyChecking is yes there: add its key to your known_hosts; "
            'for nodes of a job also: [cluster] node_ssh = "no"',
        )
    return HostKeyError(
        message,
        cause=cause,
        hint=f"run `ssh {host}` once in a terminal, compare the fingerprint and accept it",
    )


def _refused_login(host: str, match: re.Match[str]) -> TunnelkitError:
    named = match.groupdict().get("named") or host
    keys = (
        f"check User and IdentityFile for {host} in your ssh_config; `ssh-add -l` lists the keys "
        f"at hand, `ssh -v {host}` shows what is tried"
    )
    asks = "passwords and passphrases can only be asked for in a terminal"
    if _ASKS.search(match[0]):
        asks = "passwords and codes are asked for in a terminal only: `tk auth`, or `tk up`"
    return AuthenticationFailed(
        f"{both_names(host, named)} did not let us in",
        cause=match[0].strip(),
        hint=f"{keys}; {asks}",
    )


def _config(host: str, match: re.Match[str]) -> TunnelkitError:
    return ConfigError(
        f"ssh refuses its configuration for {host}",
        cause=match[0].strip(),
        hint="correct that line or file, then try again",
    )


#: What sshd still would have taken, at the end of `Permission denied`: a user's answer.
_ASKS = re.compile(r"\((.*,)?(keyboard-interactive|password)(,.*)?\)")


def _plain(
    what: str,
    hint: str,
    *,
    transient: bool = True,
    kind: type[ConnectionFailed] = ConnectionFailed,
) -> _Make:
    def make(host: str, match: re.Match[str]) -> TunnelkitError:
        named = match.groupdict().get("named") or host
        return kind(
            what.format(host=both_names(host, named)),
            cause=match[0].strip(),
            hint=hint.format(host=host),
            transient=transient,
        )

    return make


#: First match wins: what is specific, and what must never be missed, stands first.
_RULES: tuple[tuple[str, _Make], ...] = (
    (r"REMOTE HOST IDENTIFICATION HAS CHANGED", _changed_key),
    (r"^.*host key for .* (is marked as|was) revoked.*$", _revoked_key),
    (r"^No \S+ host key is known for (?P<named>\S+) and you have requested.*$", _refused_key),
    (r"^Host key verification failed\.?$", _unknown_key),
    (r"^.*(Bad configuration option|Bad owner or permissions|Can't open user config).*$", _config),
    (r"^.*command-line.*$", _config),
    (
        # Just woken up, or the resolver is away: the name itself may be right.
        r"^.*[Cc]ould not resolve hostname (?P<named>[^:]+): Temporary failure.*$",
        _plain("the name {host} can't be resolved now", "check the network, VPN and DNS"),
    ),
    (
        r"^.*[Cc]ould not resolve hostname (?P<named>[^:]+): .*$",
        _plain(
            "there is no host called {host}",
            "check the spelling, your ssh_config, and that you are online (VPN?)",
            transient=False,
        ),
    ),
    (r"^.*Too many authentication failures.*$", _refused_login),
    (r"^.*Permission denied \(.*\).*$", _refused_login),
    (
        r"^.*(Connection refused).*$",
        _plain("{host} refused the connection", "is sshd up there, and the port right?"),
    ),
    (
        r"^.*(timed out|Operation timed out).*$",
        _plain("{host} does not answer", "check the network or VPN, and the host name"),
    ),
    (
        r"^.*(No route to host|Network is unreachable|Host is down).*$",
        _plain("{host} can't be reached", "check the network or VPN"),
    ),
    (
        r"^.*(administratively prohibited|port forwarding is disabled).*$",
        _plain(
            "the host before {host} forbids TCP forwarding",
            "ask its admins for AllowTcpForwarding, or enter the node by the scheduler",
            transient=False,
        ),
    ),
    (
        r"^.*open failed: connect failed: (?!open failed)(.+)$",
        _plain(
            "{host} can't be reached from the host before it",
            "is it up, and is a job of yours on it?",
        ),
    ),
    (
        r"^.*(kex_exchange_identification|[Cc]onnection (closed|reset) by).*$",
        _plain(
            "{host} closed the connection before we could log in",
            "it may be busy or count us as too eager (MaxStartups, PerSourcePenalties); wait a "
            "little",
            kind=ConnectionThrottled,
        ),
    ),
)


def fingerprint_at(path: Path, line: int) -> str | None:
    """The SHA256 fingerprint of the key on one line of a known_hosts file."""
    try:
        text = path.expanduser().read_text(errors="replace").splitlines()[line - 1]
        done = subprocess.run(
            ["ssh-keygen", "-l", "-f", "-"],
            input=text + "\n",
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, IndexError, subprocess.TimeoutExpired):
        return None
    return _find(r"(SHA256:\S+)", done.stdout)


def both_names(host: str, named: str) -> str:
    """`host` as the user calls it, and the name that ssh knows it by if that differs."""
    return host if named == host else f"{host} ({named})"


def _find(pattern: str, text: str) -> str | None:
    match = re.search(pattern, text, re.MULTILINE)
    return match[1] if match else None
