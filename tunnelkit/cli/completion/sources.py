"""Words that TAB offers: from a cache and from the session on this machine, not the network.

The user is in the middle of a command line, so errors are silent.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tunnelkit.session.runtime.status import SessionStatus

#: A session that is alive answers in a few milliseconds; a stopped one must not hold up TAB.
_ASK_S = 0.1
# Written out: their own modules take longer to import than people wait for TAB. A test compares.
_LINKS = ("auto", "openssh", "paramiko", "kubectl-proxy", "kubectl-exec")
_SCHEDULERS = ("auto", "slurm", "pbs", "torque", "none")
_LAB_SCHEDULERS = ("auto", "slurm", "none")
_RUNNERS = ("docker", "podman", "systemd", "cgroup", "bare")
_SELECTIONS = ("all", "stopped", "running", "waiting", "ended", "failed")

_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]*")
Completer = Callable[[str], list[str]]


def _quiet(names: Callable[[], Iterable[str]]) -> Completer:
    """Return a completer: the names that begin with the typed text; [] after any error."""

    @wraps(names)
    def complete(incomplete: str) -> list[str]:
        try:
            return [name for name in names() if name.startswith(incomplete)]
        except Exception:
            return []

    # typer reads the signature to know what to pass, and would see that of `names`.
    del complete.__wrapped__
    return complete


@_quiet
def logins() -> Iterable[str]:
    """List the user's own names for hosts."""
    from tunnelkit.config.ssh_aliases import ssh_aliases

    return ssh_aliases()


@_quiet
def nodes() -> Iterable[str]:
    """List nodes of the project's cluster, or its pods and what owns them."""
    return [*_recall("nodes"), *_recall("owners")]


@_quiet
def partitions() -> Iterable[str]:
    """List partitions (queues) of the project's cluster."""
    return _recall("partitions")


@_quiet
def jobs() -> Iterable[str]:
    """Ids of the user's own jobs, as last seen."""
    return _recall("jobs")


@_quiet
def codes() -> Iterable[str]:
    """Codes of verdicts."""
    from tunnelkit.diagnosis.codes.registry import CODES

    return CODES


@_quiet
def links() -> Iterable[str]:
    """Kinds of links."""
    return _LINKS


@_quiet
def schedulers() -> Iterable[str]:
    """Names of `[cluster] scheduler`."""
    return _SCHEDULERS


@_quiet
def lab_schedulers() -> Iterable[str]:
    """Schedulers of the cluster on this machine."""
    return _LAB_SCHEDULERS


@_quiet
def runners() -> Iterable[str]:
    """Programs that hold a run of `tk simulate` to its limits."""
    return _RUNNERS


@_quiet
def automatic() -> Iterable[str]:
    """The word for a value that tk chooses."""
    return ("auto",)


@_quiet
def every() -> Iterable[str]:
    """The word for all ranks."""
    return ("all",)


@_quiet
def own_nodes() -> Iterable[str]:
    """Nodes of the allocation."""
    job = _status()["job"]
    # The shell puts a name into the line as it is.
    return [node for node in job["nodes"] if _NODE.fullmatch(node)] if job else []


@_quiet
def forwards() -> Iterable[str]:
    """Local ports of the session's forwards."""
    return [str(one["forward"]).partition(":")[0] for one in _status()["forwards"]]


@_quiet
def loops() -> Iterable[str]:
    """Ids of the session's debug loops."""
    return [str(one["id"]) for one in _status()["loops"]]


@_quiet
def ranks() -> Iterable[str]:
    """Ranks of the session's debug loops."""
    return [
        str(rank["rank"])
        for one in _status()["loops"]
        for rank in one.get("ranks") or []
        if rank["rank"] is not None
    ]


@_quiet
def selections() -> Iterable[str]:
    """Ranks of the session's debug loops, and words for some of them."""
    return [*ranks(""), *_SELECTIONS]


@_quiet
def mountpoints() -> Iterable[str]:
    """List the session's mountpoints."""
    return [str(one["mountpoint"]) for one in _status().get("mounts") or []]


@_quiet
def profiles() -> Iterable[str]:
    """Cluster profiles."""
    from tunnelkit.config.profiles import names

    return names()


@_quiet
def topics() -> Iterable[str]:
    """Topics of `tk help`, and commands."""
    from tunnelkit.cli.registry import COMMANDS, TOPICS

    return [*TOPICS, *COMMANDS]


def _recall(kind: str) -> list[str]:
    from tunnelkit.config.project import find_project
    from tunnelkit.session.runtime.completion_cache import recall

    return recall(kind, find_project(Path(os.getcwd())))


def _status() -> SessionStatus:
    """Return the status of the session that a command here would use."""
    from tunnelkit.cli.terminal.context import find_session
    from tunnelkit.session.runtime.blocking_client import ask
    from tunnelkit.session.runtime.control_calls import Status

    return ask(find_session(), Status(), silence_s=_ASK_S)
