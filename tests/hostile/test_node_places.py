"""Another user of the node takes the names of the agent's directory: it finds a place anyhow."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.other_user import OtherUser

pytestmark = pytest.mark.root

#: The agent's command line, on a node whose places are those in its first argument.
_AGENT = """
import json, sys
from tunnelkit.agent import main
from tunnelkit.agent.links import socket_dir
socket_dir._PARENTS = tuple(json.loads(sys.argv[1]))
sys.exit(main.main(sys.argv[2:]))
"""
#: Takes these names: the first as a directory, the second as a link to the third, a directory.
_SQUAT = """
import json, os, sys
os.umask(0)
names = json.load(sys.stdin)
os.mkdir(names[0], 0o700)
os.mkdir(names[2], 0o777)
os.symlink(names[2], names[1])
print("{}")
"""
#: Takes each name that he sees, as soon as its owner has gone.
_SQUAT_ON_SEEN = """
import json, os, sys
for path in json.load(sys.stdin):
    os.mkdir(path, 0o700)
print("{}")
"""


class Node:
    """A node of its own to an agent: three places that all may write to, and a home."""

    def __init__(self, base: Path) -> None:
        self.parents = [base / name for name in ("tmp", "var", "shm")]
        for parent in self.parents:
            parent.mkdir()
            parent.chmod(0o1777)
        self.home = base / "home"
        self.home.mkdir(mode=0o700)

    def agent(self, *words: str) -> subprocess.Popen[bytes]:
        places = json.dumps([str(parent) for parent in self.parents])
        return subprocess.Popen(
            [sys.executable, "-c", _AGENT, places, *words],
            env={**os.environ, "HOME": str(self.home)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def serve(self, name: str) -> Path:
        """Run an agent until it listens, have `attach` find it, end it; its directory."""
        agent = self.agent("serve", name, "--while-stdin")
        assert agent.stdin is not None and agent.stdout is not None
        try:
            assert agent.stdout.readline()
            (sock,) = [path for parent in self.parents for path in parent.glob(f"tk-*/{name}.sock")]
            attached = self.agent("attach", name)
            attached.communicate(timeout=60)  # it hangs up, as a link that is lost
            assert attached.returncode == 0
        finally:
            agent.stdin.close()
            agent.wait(60)
            agent.stdout.close()
        assert list(sock.parent.iterdir()) == []
        return sock.parent


#: His own places go by his own hand: nobody else may remove them from a sticky directory.
_LEAVE = """
import json, os, shutil, sys
for parent in json.loads(sys.stdin.read()):
    for name in os.listdir(parent):
        path = os.path.join(parent, name)
        if os.lstat(path).st_uid == os.getuid():
            os.unlink(path) if os.path.islink(path) else shutil.rmtree(path)
print("[]")
"""


@pytest.fixture
def node(other_user: OtherUser) -> Iterator[Node]:
    with tempfile.TemporaryDirectory(prefix="tkn", dir="/tmp") as base:
        os.chmod(base, 0o755)
        made = Node(Path(base))
        try:
            yield made
        finally:
            other_user.ask(_LEAVE, [str(parent) for parent in made.parents])


def test_an_agent_has_a_place_though_all_its_names_are_taken(
    node: Node, other_user: OtherUser
) -> None:
    name = f"test-{uuid.uuid4().hex[:12]}"
    known = [str(parent / f"tunnelkit-{os.getuid()}") for parent in node.parents]
    other_user.ask(_SQUAT, known)
    place = node.serve(name)
    assert place.stat().st_uid == os.getuid() and place.stat().st_mode & 0o777 == 0o700
    # He has seen that name by now. The node restarts, and he takes it on all of its places.
    shutil.rmtree(place)
    other_user.ask(_SQUAT_ON_SEEN, [str(parent / place.name) for parent in node.parents])
    assert node.serve(name).name != place.name
