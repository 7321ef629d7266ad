"""Another user of the laptop: he tries what is open, or holds tk's name in the place of all.

/tmp itself is not touched: `SharedPlace` is a directory like it, which tk's processes take for it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.other_user import OtherUser

#: Runs as the other user, in the shared place, until its stdin ends; then gives the name up and
#: prints what he was sent. `kind`: what he makes of the name.
_SQUAT = r"""
import os, select, shutil, socket, sys
name, kind, mine = sys.argv[1:]
os.umask(0)
listener = socket.socket(socket.AF_UNIX)
if kind == "session":
    os.makedirs(os.path.join(name, "0badf00d"))
    os.chdir(os.path.join(name, "0badf00d"))
    listener.bind("control.sock")
    os.chdir("../..")
elif kind == "symlink":
    os.symlink(mine, name)
else:
    os.mkdir(name, 0o700)
if kind != "session":
    listener.bind("")  # somewhere: nobody knows where
listener.listen()
print("there", flush=True)
got = b""
while sys.stdin not in (ready := select.select([sys.stdin, listener], [], [])[0]):
    peer, _ = listener.accept()
    peer.settimeout(2)
    try:
        got += b"connected " + peer.recv(4096)
    except OSError:
        pass
    peer.close()
(os.unlink if kind == "symlink" else shutil.rmtree)(name)
sys.stdout.buffer.write(got)
"""
#: Python runs this in every process of tk that has it in its PYTHONPATH.
_SITE = """
    from pathlib import Path
    import tunnelkit.session.runtime.paths as paths
    paths.SHARED = Path({place!r})
"""


#: Runs as the other user. What a debugger's client would say, to every port; what came back.
_PROBE = r"""
import json, os, socket, sys
order = json.load(sys.stdin)
assert os.getuid() == order["uid"]
hello = b'{"seq":1,"type":"request","command":"initialize","arguments":{"adapterID":"x"}}'
hello = b"Content-Length: %d\r\n\r\n" % len(hello) + hello
said = {}
for port in order["ports"]:
    data = b""
    try:
        # Refused: a port that was only there for a moment, such as an adapter's first answer.
        sock = socket.create_connection(("127.0.0.1", port), 10)
        sock.sendall(hello)
        while chunk := sock.recv(4096):
            data += chunk
        end = "closed"
    except ConnectionError:
        end = "closed"
    except TimeoutError:
        end = "still open"
    said[port] = [end, data.decode("latin1")]
sockets = {}
for path in order["sockets"]:
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.connect(path)
        sockets[path] = "connected"
    except OSError as error:
        sockets[path] = type(error).__name__
files = {}
for path in order["files"]:
    try:
        open(path, "rb").read(1)
        files[path] = "read"
    except OSError as error:
        files[path] = type(error).__name__
json.dump({"ports": said, "sockets": sockets, "files": files}, sys.stdout)
"""


def try_all(
    other: OtherUser, *, ports: list[int], sockets: list[str], files: list[str]
) -> dict[str, dict[str, Any]]:
    """Have him try each; what came of it."""
    order = {"uid": other.uid, "ports": ports, "sockets": sockets, "files": files}
    seen: dict[str, dict[str, Any]] = other.ask(_PROBE, order)
    return seen


@dataclass(frozen=True)
class SharedPlace:
    """A directory where everybody may make names, as in /tmp. `environ` makes tk use it."""

    path: Path
    site: Path

    @property
    def name(self) -> Path:
        """What the person's tk would make there."""
        return self.path / f"tk-{os.getuid()}"

    def environ(self, base: dict[str, str]) -> dict[str, str]:
        """`base` for a tk that has nothing but this place for its sockets."""
        kept = {k: v for k, v in base.items() if k not in ("TK_RUNTIME_DIR", "XDG_RUNTIME_DIR")}
        return {**kept, "PYTHONPATH": str(self.site)}


class Squatter:
    """The other user, with the name taken. `leave` once."""

    def __init__(self, other: OtherUser, place: SharedPlace, kind: str, mine: Path) -> None:
        words = [str(place.name), kind, str(mine)]
        self._process = subprocess.Popen(
            [*other.script(_SQUAT), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/"
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"there\n"
        assert place.name.lstat().st_uid == other.uid

    def leave(self) -> bytes:
        """Have him give the name up; what he was sent."""
        got, _ = self._process.communicate(timeout=30)
        return got


@pytest.fixture
def shared_place() -> Iterator[SharedPlace]:
    """A place as /tmp is, for this test alone."""
    base = Path(tempfile.mkdtemp(prefix="tks", dir="/tmp"))
    base.chmod(0o755)
    place, site = base / "t", base / "site"
    place.mkdir()
    place.chmod(0o1777)
    site.mkdir()
    (site / "sitecustomize.py").write_text(textwrap.dedent(_SITE).format(place=str(place)))
    yield SharedPlace(place, site)
    shutil.rmtree(base)
