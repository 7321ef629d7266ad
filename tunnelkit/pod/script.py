"""The script that brings an agent into a pod. It is sent as text and runs there.

Python 3.8 and the standard library only. Its order is a JSON object, the last word of its argv:

boot   find a private place, say in one line what is there, take the agent's zip from stdin if it is
       not, then become `agent attach` on the same stream
hold   the main process of a pod of tk's own: wait for the zip, then become the agent
clean  remove what tk has put there
"""

import hashlib
import json
import os
import shutil
import signal
import socket
import stat
import sys
import time
from typing import Dict, Iterator, List, Optional, Tuple

#: Exit statuses: no place (EX_CANTCREAT), no zip (EX_TEMPFAIL).
NO_PLACE, NO_ZIP = 73, 75
#: Tells agent and `attach` where the socket is (agent/links/socket_dir.py), and the pod's name.
PLACE, NODE = "TK_PLACE", "TK_NODE"
_FOR_ALL = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - checked by `_is_ours`
#: What may be mounted writable, and is no place for files.
_NOT_HERE = ("/proc", "/sys", "/dev", "/run/secrets", "/var/run/secrets")
_LOOK_S = 0.05
_GRACE_S = 1.0
_HOST_CHARS = 40
_MOST_PARENTS = 64
#: Of a unix socket's path.
_MOST_BYTES = 107


def places(directory: str, environ: Dict[str, str], mounts: List[str]) -> Iterator[str]:
    """Directories that may be tk's own, the best first. directory: the setting, "" for none."""
    own = f"tunnelkit-{os.getuid()}"
    # Other pods may see the same home and mounts: sockets of two must not meet.
    here = f"{own}-{_host()}"
    if environ.get("TK_DIR", "").startswith("/"):
        yield environ["TK_DIR"]
    if directory:
        # Below it: the directory itself may have files of the user's.
        yield os.path.join(os.path.expanduser(os.path.expandvars(directory)), here)
    for parent in _FOR_ALL:
        yield os.path.join(parent, here if parent in mounts else own)
    home = environ.get("HOME", "")
    if home.startswith("/") and home != "/":
        yield os.path.join(home, ".cache", "tunnelkit", here)
    for mount in mounts:
        yield os.path.join(mount, here)


def _host() -> str:
    """The pod's host name. Pods of one owner differ at the end of it, so none is just cut."""
    name = socket.gethostname()
    if len(name) <= _HOST_CHARS:
        return name
    return name[: _HOST_CHARS - 9] + "-" + hashlib.sha256(name.encode()).hexdigest()[:8]


def writable_mounts(text: str) -> List[str]:
    """The mount points in /proc/mounts that are not read-only."""
    found = []
    for line in text.splitlines():
        words = line.split(" ")
        if len(words) < 4 or "ro" in words[3].split(","):
            continue
        path = words[1].replace("\\040", " ")
        if path != "/" and os.path.isdir(path) and not path.startswith(_NOT_HERE):
            found.append(path)
    return found[:32]


def find_place(candidates: Iterator[str], name: str = "") -> Tuple[Optional[str], List[str]]:
    """The first directory that is, or can be made, ours alone and writable; why others are not.

    name: of the agent, whose socket will lie there."""
    reasons: List[str] = []
    for path in candidates:
        made = False
        try:
            if len(os.fsencode(os.path.join(path, name + ".sock"))) > _MOST_BYTES:
                raise OSError(0, "too long for a socket's path")
            os.makedirs(os.path.dirname(path), exist_ok=True)
            try:
                os.mkdir(path, 0o700)
                made = True
            except FileExistsError:
                pass  # a pod's main process, and who comes to it, make it at the same time
            if not _is_ours(path):
                raise OSError(0, "not a private directory of ours")
            probe = os.path.join(path, f".probe-{os.getpid()}")
            os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            os.unlink(probe)
            return path, reasons
        except OSError as error:
            reasons.append(f"{path}: {error.strerror}")
            if made:
                _remove_empty(path)
    return None, reasons


def _remove_empty(path: str) -> None:
    try:
        os.rmdir(path)
    except OSError:
        pass  # another one that comes at the same time uses it


def _is_ours(path: str) -> bool:
    status = os.lstat(path)
    mode = stat.S_IMODE(status.st_mode)
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not mode & 0o077


def environment(base: str, environ: Dict[str, str]) -> Dict[str, str]:
    """Variables that the pod lacks: HOME, and USER for a uid without an entry; and tk's place."""
    found = {PLACE: base}
    home = environ.get("HOME", "")
    if not home.startswith("/") or home == "/" or not os.access(home, os.W_OK | os.X_OK):
        found["HOME"] = os.path.join(base, "home")
        os.makedirs(found["HOME"], 0o700, exist_ok=True)
    import pwd

    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        for name in ("USER", "LOGNAME"):
            if not environ.get(name):
                found[name] = "user"
    return found


def is_whole(path: str, size: int, digest: str) -> bool:
    """True if the file is there as it was sent."""
    try:
        with open(path, "rb") as file:
            data = file.read(size + 1)
    except OSError:
        return False
    return len(data) == size and hashlib.sha256(data).hexdigest() == digest


def receive(path: str, size: int, digest: str) -> None:
    """Take the file from stdin. Raises OSError."""
    left, parts = size, []
    while left:
        data = os.read(0, min(left, 65536))
        if not data:
            raise OSError(0, "the stream ended before all of the agent had come")
        left -= len(data)
        parts.append(data)
    partial = f"{path}.{os.getpid()}"
    fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(b"".join(parts))
    os.replace(partial, path)
    if not is_whole(path, size, digest):
        raise OSError(0, "not all of it arrived on the disk")


def say(answer: Dict[str, object]) -> None:
    """Answer, in one line."""
    data = (json.dumps(answer) + "\n").encode()
    while data:
        data = data[os.write(1, data) :]


def boot(order: Dict[str, object]) -> int:
    """See above."""
    base, reasons = _place(order)
    if base is None:
        say({"error": "no place", "reasons": reasons[:12]})
        return NO_PLACE
    path, size = os.path.join(base, str(order["file"])), int(str(order["size"]))
    digest, name = str(order["digest"]), str(order["name"])
    have = is_whole(path, size, digest)
    runs = os.path.exists(os.path.join(base, name + ".sock"))
    gives = environment(base, dict(os.environ))
    os.environ.update(gives, **{NODE: str(order["node"])})
    facts = {"have": have, "runs": runs, "base": base, "home": os.environ["HOME"]}
    say(
        {
            **facts,
            "gives": sorted(set(gives) - {PLACE}),
            "python": sys.executable,
            "version": ".".join(map(str, sys.version_info[:2])),
            "uid": os.getuid(),
            "cwd": os.getcwd(),
        }
    )
    if not have:
        receive(path, size, digest)
    words = ["attach", name]
    if order.get("start"):
        words.append("--start")
    elif order.get("wait_s") and not runs:
        _wait(os.path.join(base, name + ".sock"), float(str(order["wait_s"])))
    return _become(path, words)


def hold(order: Dict[str, object]) -> int:
    """See above. A pod that nobody comes to must not hold its GPUs."""
    signal.signal(signal.SIGTERM, lambda number, frame: os._exit(128 + number))
    base, reasons = _place(order)
    if base is None:
        print("tunnelkit: no place to write to: " + "; ".join(reasons), file=sys.stderr)
        return NO_PLACE
    path = os.path.join(base, str(order["file"]))
    _wait(path, float(str(order["wait_s"])))
    if not is_whole(path, int(str(order["size"])), str(order["digest"])):
        print("tunnelkit: nobody has come; is `tk up` still there?", file=sys.stderr)
        return NO_ZIP
    os.environ.setdefault(NODE, socket.gethostname())
    os.environ.update(environment(base, dict(os.environ)))
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    return _become(path, ["serve", str(order["name"])])


def clean(order: Dict[str, object]) -> int:
    """See above. Stays: a home with files in it, and all if another agent of this user runs."""
    for base in _candidates(order):
        has_agent = os.path.exists(os.path.join(base, str(order["file"])))
        if has_agent and os.path.isdir(base) and _is_ours(base):
            _clean(base, str(order["name"]), float(str(order["wait_s"])))
    return 0


def _clean(base: str, name: str, limit_s: float) -> None:
    _wait_gone(os.path.join(base, name + ".sock"), limit_s)
    for entry in os.listdir(base):
        if entry.endswith(".sock") and entry != name + ".sock":
            return
    home = os.path.join(base, "home")
    keeps = [os.path.join(top, one) for top, _, files in os.walk(home) for one in files]
    _end_started(base)
    for entry in os.listdir(base):
        path = os.path.join(base, entry)
        if path == home and keeps:
            continue
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)
    if not keeps:
        os.rmdir(base)


def _end_started(base: str) -> None:
    """End what the agent has started and a command has left behind, such as `nohup ... &`."""
    mark = f"{PLACE}={base}".encode()
    found: List[int] = []
    for number in (signal.SIGTERM, signal.SIGKILL):
        # Those that were found stay known: their parents may be gone by now.
        found = _carrying(mark, found)
        for pid in found:
            try:
                os.kill(pid, number)
            except OSError:
                pass
        deadline = time.monotonic() + _GRACE_S
        while found and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
            found = _carrying(mark, found)


def _carrying(mark: bytes, known: List[int]) -> List[int]:
    """This container's processes that have `mark` in their environment. known: some of them.

    With hostPID or a shared process namespace others are seen, too, and their paths are the same.
    """
    found, here = [], _mounts_of("self")
    # Without these the first process is the container's own, and so are all that are seen.
    is_alone = _mounts_of("1") == here
    for entry in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if not entry.isdigit() or int(entry) == os.getpid() or not _has(entry, mark):
            continue
        if is_alone or int(entry) in known or _comes_from(entry, here, mark):
            found.append(int(entry))
    return found


def _comes_from(pid: str, here: str, mark: bytes) -> bool:
    """True if a process, or one that it descends from, has these mounts and the mark.

    Apptainer, bwrap and `unshare -m` give what they run mounts of its own."""
    for _ in range(_MOST_PARENTS):
        if _mounts_of(pid) == here and _has(pid, mark):
            return True
        pid = _parent(pid)
        if pid in ("", "0"):
            break
    return False


def _has(pid: str, mark: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return mark in file.read().split(b"\0")
    except OSError:
        return False


def _parent(pid: str) -> str:
    """The process's parent; "" if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name before it may have any character.
            return file.read().rpartition(b")")[2].split()[1].decode()
    except (OSError, IndexError):
        return ""


def _mounts_of(pid: str) -> str:
    """The mount namespace of a process; "" if it is gone, or the kernel has none."""
    try:
        return os.readlink(f"/proc/{pid}/ns/mnt")
    except OSError:
        return ""


def _candidates(order: Dict[str, object]) -> Iterator[str]:
    try:
        with open("/proc/mounts") as file:
            mounts = writable_mounts(file.read())
    except OSError:
        mounts = []
    return places(str(order.get("directory") or ""), dict(os.environ), mounts)


def _place(order: Dict[str, object]) -> Tuple[Optional[str], List[str]]:
    return find_place(_candidates(order), str(order["name"]))


def _wait(path: str, limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while not os.path.exists(path) and time.monotonic() < deadline:
        time.sleep(_LOOK_S)


def _wait_gone(path: str, limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while os.path.exists(path) and time.monotonic() < deadline:
        time.sleep(_LOOK_S)


def _become(path: str, words: List[str]) -> int:
    sys.stdout.flush()
    os.execv(  # noqa: S606 - there may be no shell
        sys.executable, [sys.executable, "-I", "-S", path, *words]
    )
    return 1


def main(text: str) -> int:
    """Carry out an order; return the exit status."""
    order = json.loads(text)
    return {"boot": boot, "hold": hold, "clean": clean}[str(order["do"])](order)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[-1]))
    except OSError as failed:
        print(f"tunnelkit: {failed}", file=sys.stderr)
        sys.exit(NO_PLACE)
