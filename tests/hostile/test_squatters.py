"""Another user holds the name of tk's directory in /tmp: he learns nothing and stops nothing."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hostile.local_user import SharedPlace, Squatter
from tests.support.other_user import OtherUser, why_no_other_user
from tests.support.tkrig import Project
from tunnelkit.errors import ConfigError
from tunnelkit.session.runtime.control_address import reach
from tunnelkit.session.runtime.paths import SessionPaths

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(bool(why_no_other_user()), reason=str(why_no_other_user())),
]
_TK = Path(sys.executable).parent / "tk"
KINDS = ["session", "symlink", "closed"]


@pytest.mark.parametrize("kind", KINDS)
def test_no_command_talks_to_a_fake_session(
    kind: str, other_user: OtherUser, shared_place: SharedPlace, tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir(mode=0o700)
    environ = shared_place.environ({**os.environ, "TK_STATE_DIR": str(tmp_path / "state")})
    squatter = Squatter(other_user, shared_place, kind, mine)
    try:
        for words in (["auth"], ["status"], ["ready"], ["logs", "--session"], ["down"]):
            done = subprocess.run(
                [_TK, *words],
                cwd=tmp_path,
                env=environ,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert done.returncode == 4, (words, done)
            assert "Traceback" not in done.stderr
    finally:
        got = squatter.leave()
    assert got == b""
    assert list(mine.iterdir()) == []


@pytest.mark.parametrize("kind", KINDS)
async def test_a_session_comes_up_and_stays_reachable(
    kind: str, other_user: OtherUser, shared_place: SharedPlace, project: Project
) -> None:
    """Also after he has given the name up, which tk must not go back to."""
    mine = project.base / "mine"
    mine.mkdir(mode=0o700)
    project.env = shared_place.environ(project.env)
    squatter = Squatter(other_user, shared_place, kind, mine)
    try:
        up = await project.up("node1")
        assert (await project.status())["pid"] == up["pid"]
    finally:
        got = await asyncio.to_thread(squatter.leave)
    assert not os.path.lexists(shared_place.name)
    assert (await project.status())["pid"] == up["pid"]
    assert (await project.tk("run", "echo", "hello")).out == "hello\n"
    assert (got, list(mine.iterdir())) == (b"", [])
    await project.tk("down")


def test_a_socket_of_another_user_is_refused_though_the_directory_is_ours(
    other_user: OtherUser, tmp_path: Path, shared_place: SharedPlace
) -> None:
    """The directory's owner can be tricked; the kernel's answer on the socket can't."""
    squatter = Squatter(other_user, shared_place, "session", tmp_path)
    runtime = shared_place.site / "run" / "0badf00d"
    runtime.mkdir(parents=True, mode=0o700)
    runtime.parent.chmod(0o700)
    paths = SessionPaths(runtime.name, runtime, tmp_path)
    paths.control_socket.symlink_to(shared_place.name / "0badf00d" / "control.sock")
    try:
        with socket.socket(socket.AF_UNIX) as sock, pytest.raises(ConfigError, match="uid"):
            reach(sock, paths)
    finally:
        got = squatter.leave()
    assert got in (b"", b"connected ")
