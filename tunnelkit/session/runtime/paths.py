"""Paths of a session: its sockets (runtime) and the files that outlive it (state).

`tk status` imports this file and must start fast, so imports that only others need are local.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import socket
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from tunnelkit.errors import ConfigError, NoSessionError, TimeoutExpired
from tunnelkit.machine import machine_id

_SLUG = re.compile(r"[^A-Za-z0-9]+")
_CONTROL = "control.sock"
#: Of a file system without hard links.
_NO_LINKS = frozenset((errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK))
#: sockaddr_un holds 108 bytes on Linux, 104 elsewhere.
_MAX_SOCKET_PATH_BYTES = 103
#: ssh creates its control socket in ROOT/ID/l, with a name of 30 bytes.
_MAX_ROOT_BYTES = _MAX_SOCKET_PATH_BYTES - len("/01234567/l/") - 30
#: The directory that all users of this machine share.
SHARED = Path("/tmp")  # noqa: S108 - each use of it checks whose the directory is


class SessionPaths:
    """The paths of one session. `runtime` is 0700 and short; `state` survives a reboot.

    No dataclass: each command needs the paths, and loading `dataclasses` takes it 10 ms.
    """

    def __init__(self, id: str, runtime: Path, state: Path) -> None:
        self.id = id
        self.runtime = runtime
        self.state = state
        #: The socket where commands talk to the session.
        self.control_socket = runtime / _CONTROL
        #: The directory of the link's control sockets.
        self.link_dir = runtime / "l"
        #: The lock file (see `hold_lock`).
        self.lock = runtime / "lock"
        #: The launch record; exists while the session may have left something on the cluster.
        self.launch = state / "launch.json"
        #: The launch record of a session that has not yet reached the cluster.
        self.launch_wanted = state / "launch-wanted.json"
        #: The list of jobs that tk has cancelled (cancelled_jobs.py).
        self.cancelled = state / "cancelled"
        #: Names `runtime`, for commands with another environment.
        self.place = state / "runtime"
        self.session_log = state / "session.log"
        #: The session's events (event_log.py).
        self.events = state / "events.jsonl"
        #: The log of the restart loop's output.
        self.loop_log = state / "loop.log"
        #: The last answer to `tk why`, for a bug report.
        self.diagnosis = state / "diagnosis.json"
        #: The directory of the mirror's state.
        self.mirror_state = state / "mirror"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SessionPaths) and vars(self) == vars(other)

    def make(self) -> None:
        """Create the directories, private to this user. Raises ConfigError if that fails."""
        if len(os.fsencode(self.control_socket)) > _MAX_SOCKET_PATH_BYTES:
            raise ConfigError(
                f"the path of the runtime directory is too long for sockets: {self.runtime}",
                hint="set TK_RUNTIME_DIR to a short path of your own, such as /tmp/me",
            )
        # The parent too: its owner could put another directory in place of the session's.
        runtime = (self.runtime.parent, self.runtime, self.link_dir)
        for path in (*runtime, self.state, self.mirror_state):
            private_directory(path)


def session_paths(project_dir: Path) -> SessionPaths:
    """Return the paths of the project's session; creates nothing but this machine's salt.

    The id is the same for every call from the project on this machine, and differs on every
    other machine: two laptops with one account, or two workstations with one home, don't take
    each other's jobs. A session that lives is found where it began, whatever TK_RUNTIME_DIR and
    XDG_RUNTIME_DIR are here.
    """
    key = f"{_machine_salt()}:{os.getuid()}:{project_dir.resolve()}"
    session_id = hashlib.sha256(key.encode()).hexdigest()[:8]
    paths = SessionPaths(session_id, runtime_root() / session_id, state_root() / session_id)
    return _where_it_lives(paths) or paths


def _where_it_lives(paths: SessionPaths) -> SessionPaths | None:
    """Return the paths of the session if it lives with another runtime directory."""
    try:
        runtime = Path(paths.place.read_text("utf-8", "surrogateescape"))
    except OSError:
        return None
    found = SessionPaths(paths.id, runtime, paths.state)
    if runtime == paths.runtime or not (is_private(runtime.parent) and is_private(runtime)):
        return None
    return found if _locked(found.lock) else None


def job_name(project_dir: Path, session_id: str) -> str:
    """Return the job name by which a session finds its job again."""
    slug = _SLUG.sub("-", project_dir.name).strip("-")[:24] or "project"
    return f"tk-{slug}-{session_id}"


def live_sessions() -> Iterator[SessionPaths]:
    """Yield this user's sessions that have a control socket, which may be stale.

    Directories that another user could have created are skipped.
    """
    root = runtime_root()
    if is_private(root):
        for entry in sorted(root.iterdir()):
            if is_private(entry) and (entry / _CONTROL).exists():
                yield SessionPaths(entry.name, entry, state_root() / entry.name)


@contextmanager
def hold_lock(paths: SessionPaths) -> Iterator[None]:
    """Hold the session's lock: for the session, or for `tk down` after a killed session.

    The kernel releases the lock however the process ends. Raises NoSessionError if another
    process holds it.
    """
    fd = os.open(paths.lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise NoSessionError(
                "another tk is just starting or ending this session",
                hint="wait a moment, then see `tk status`",
                transient=True,
            ) from None
        with suppress(OSError):
            write_private(paths.place, str(paths.runtime))
        yield
    finally:
        os.close(fd)


async def wait_unlocked(paths: SessionPaths, timeout_s: float) -> None:
    """Return once no process holds the session's lock. Raises TimeoutExpired."""
    import asyncio

    deadline = asyncio.get_running_loop().time() + timeout_s
    while _locked(paths.lock):
        if asyncio.get_running_loop().time() > deadline:
            raise TimeoutExpired(
                f"the session did not end within {timeout_s:.0f} s",
                hint=f"see {paths.session_log}",
            )
        await asyncio.sleep(0.02)


def is_locked(paths: SessionPaths) -> bool:
    """True if a process holds the session's lock: a session, even while starting, or `tk down`."""
    return _locked(paths.lock)


def _locked(path: Path) -> bool:
    try:
        fd = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(fd)


def runtime_root() -> Path:
    """Return the directory of all sessions' sockets: short, because socket paths are limited.

    If another user holds the name in /tmp, it is a directory that only this user can write to. It
    stays there: commands must find the session even after that user has released the name.
    """
    chosen = os.environ.get("TK_RUNTIME_DIR")
    if chosen:
        return Path(chosen) / "tk"
    base = os.environ.get("XDG_RUNTIME_DIR")
    if base and _is_ours(Path(base)):
        return Path(base) / "tk"
    shared, own = SHARED / f"tk-{os.getuid()}", _own_runtime_root()
    foreign = os.path.lexists(shared) and not _is_ours(shared)
    return own if foreign or is_private(own) else shared


def _own_runtime_root() -> Path:
    """Return a root that only this user can write to; below the state directory if short enough."""
    below_state = state_root() / "run"
    fits = len(os.fsencode(below_state)) <= _MAX_ROOT_BYTES
    return below_state if fits else Path.home() / ".tk-run"


def patient_logins() -> Path:
    """Return the file of the hosts whose logins wait for their user."""
    return state_root() / "patient-logins"


def state_root(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the directory of all sessions' lasting state."""
    override = environ.get("TK_STATE_DIR")
    if override:
        return Path(override)
    from platformdirs import user_state_path

    return user_state_path("tunnelkit")


def cache_root() -> Path:
    """Return the directory of the completion names and of the agent's zip for this machine."""
    override = os.environ.get("TK_CACHE_DIR")
    if override:
        return Path(override)
    from platformdirs import user_cache_path

    return user_cache_path("tunnelkit")


def is_private(path: Path) -> bool:
    """True if only this user can have created the directory's files.

    That is: it belongs to this user, has mode 0700, and is no symlink.
    """
    return _is_ours(path, forbidden=0o077)


def _is_ours(path: Path, *, forbidden: int = 0o022) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    return (
        stat.S_ISDIR(status.st_mode)
        and status.st_uid == os.getuid()
        and not stat.S_IMODE(status.st_mode) & forbidden
    )


def private_directory(path: Path) -> Path:
    """Create `path`, mode 0700; raise ConfigError if that fails or it is another user's."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.lstat()
    except OSError as error:
        raise ConfigError(
            f"can't make the directory {path}",
            cause=error.strerror,
            hint="TK_RUNTIME_DIR and TK_STATE_DIR choose other places",
        ) from None
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise ConfigError(
            f"{path} is not a directory of yours",
            hint="set TK_RUNTIME_DIR to a private directory",
        )
    if stat.S_IMODE(status.st_mode) & 0o077:
        path.chmod(0o700)
    return path


def write_private(path: Path, text: str) -> None:
    """Replace a file atomically, 0600; a missing directory is made 0700. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(fd, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def _machine_salt() -> str:
    """Return what differs on another machine, also on one that shares this state directory.

    Workstations may share a home. The first of them uses the salt as it is; so does one that has
    its name (a diskless one may have another id after each boot) or no id.
    """
    kept = state_root() / "machine-id"
    salt = _lasting(kept, os.urandom(16).hex())
    if not machine_id() or _text_in(kept) is None:
        return salt
    # Not the id itself: man machine-id asks to keep that on its machine.
    own = hashlib.sha256(f"tunnelkit:{machine_id()}".encode()).hexdigest()[:32]
    name = socket.gethostname()
    first = _lasting(state_root() / "first-machine", f"{own} {name}")
    first_id, _, first_name = first.partition(" ")
    return salt if own == first_id or name == first_name else f"{salt}:{name}"


def _lasting(path: Path, text: str) -> str:
    """Return the file's text. Write this text if it has none."""
    known = _text_in(path)
    if known:
        return known
    private_directory(path.parent)
    # Two first commands at once must not read half a text, nor may a full disk leave one.
    temporary = path.with_name(f"{path.name}.{os.getpid()}-{os.urandom(4).hex()}")
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "w") as file:
            file.write(text)
        if known is not None:
            temporary.replace(path)  # an empty one
        else:
            _keep_first(temporary, path, text)
    except OSError as error:
        print(f"tk: can't write {path}: {error.strerror}", file=sys.stderr)
    finally:
        temporary.unlink(missing_ok=True)
    return _text_in(path) or text


def _keep_first(temporary: Path, path: Path, text: str) -> None:
    """Give the written file its name, unless another one has it already. Raises OSError."""
    with suppress(FileExistsError):
        try:
            os.link(temporary, path)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(fd, "w") as file:
                file.write(text)


def _text_in(path: Path) -> str | None:
    """Return the file's text; None if there is none. Raises ConfigError if it can't be read: with
    another salt the session and its job would be lost."""
    try:
        return path.read_text("utf-8", "replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(
            f"{path} can't be read",
            cause=error.strerror,
            hint="make it readable, or set TK_STATE_DIR to a directory of your own",
        ) from None
