"""The login host for `tk submit` and `tk keep`: tk's directory there, by any connection."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tunnelkit.cluster_dir import TK_OWN_DIR
from tunnelkit.config.schema import Settings
from tunnelkit.errors import AllocationError, SchedulerError
from tunnelkit.link.base import Prompter
from tunnelkit.model import Completed
from tunnelkit.scheduler.base import Command, Scheduler
from tunnelkit.scheduler.batch_scripts import BatchScripts
from tunnelkit.session.connection.own_link import own_link

#: Limit for one command there.
LIMIT_S = 75.0

# $1 tk's directory, $2 a directory to work in, or "". Prints tk's directory as found and the one
# to work in: the home if $2 is not there.
_PREPARE = (
    TK_OWN_DIR
    + r"""
umask 077
tk_own_dir "$1" && mkdir -p "$d/jobs" "$d/kept" || exit 1
own=$d
if [ -n "$2" ] && tk_dir "$2" 2>/dev/null && cd -- "$d" 2>/dev/null; then :; else cd || exit 1; fi
printf 'tk-own %s\ntk-work %s\n' "$own" "$(pwd)"
"""
)


@dataclass(frozen=True)
class Login:
    """run: runs a command on the login host. name: its name, for messages.

    scheduler: the cluster's. scripts: its part for batch scripts."""

    run: Callable[[Command], Awaitable[Completed]]
    name: str
    scheduler: Scheduler
    scripts: BatchScripts
    settings: Settings


@dataclass(frozen=True)
class Places:
    """Absolute paths on the login host. own: tk's directory. work: where sbatch runs."""

    own: str
    work: str

    @property
    def jobs(self) -> str:
        """The directory of submissions."""
        return f"{self.own}/jobs"

    @property
    def kept(self) -> str:
        """The directory of the files of kept jobs."""
        return f"{self.own}/kept"


def login_of(
    run: Callable[[Command], Awaitable[Completed]],
    name: str,
    scheduler: Scheduler | None,
    settings: Settings,
) -> Login:
    """Return the login host. Raises SchedulerError if tk can't submit scripts there."""
    scripts = None if scheduler is None else scheduler.batch_scripts()
    if scheduler is None or scripts is None:
        raise SchedulerError(
            f"{name} has no scheduler whose batch scripts tk submits",
            cause=None if scheduler is None else f"it has {scheduler.name}",
            hint="they are for Slurm, PBS and Torque; `tk doctor` shows what was found",
        )
    return Login(run, name, scheduler, scripts, settings)


@asynccontextmanager
async def own_login(settings: Settings, prompter: Prompter | None) -> AsyncIterator[Login]:
    """Connect without a session. Raises ConnectionFailed, HostKeyError, SchedulerError."""
    async with own_link(settings, prompter) as own:
        link = own.link

        async def run(command: Command) -> Completed:
            return await link.run(command.argv, stdin=command.stdin, timeout_s=LIMIT_S)

        yield login_of(run, link.name, own.scheduler, settings)


async def prepare(login: Login, work: str = "") -> Places:
    """Make tk's directories, and find the one to work in. Raises AllocationError."""
    words = (login.settings.cluster.directory, work)
    done = await login.run(Command(("sh", "-c", _PREPARE, "sh", *words)))
    found: dict[str, str] = {}
    for line in done.text.splitlines():
        name, _, value = line.partition(" ")
        found[name] = value
    if done.exit_code != 0 or not {"tk-own", "tk-work"} <= found.keys():
        raise AllocationError(
            f"can't prepare {login.settings.cluster.directory} on {login.name}",
            cause=done.error_text or None,
            hint="set [cluster] directory to a place that the nodes see; `tk doctor` checks it",
        )
    return Places(found["tk-own"], found["tk-work"])
