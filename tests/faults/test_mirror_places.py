"""Faults of places: full or lost disks, files that can't be written, login shells that talk.

The table of all faults of the mirror is in test_mirror_table.py.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.far_path import far_path
from tests.support.mirror_rig import Rig, needs_rsync, until
from tests.support.mirror_sshd import Sshd
from tunnelkit.errors import MirrorError, MissingProgram
from tunnelkit.mirror.api import MirrorHalted, MirrorState
from tunnelkit.mux.channel import Channel
from tunnelkit.session.files.file_agents import HeldFileAgent

pytestmark = needs_rsync


@contextmanager
def _tmpfs(directory: Path, size_mb: int) -> Iterator[None]:
    """A small file system on that directory; skips where this user may not mount."""
    options = f"size={size_mb}m,mode=700"
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(directory)],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=False, capture_output=True)


@pytest.mark.root
async def test_1_an_unmounted_source_halts(rig: Rig) -> None:
    with _tmpfs(rig.local, 8):
        for number in range(20):
            rig.write(f"{number}.py")
        mirror = await rig.started()
        subprocess.run(["umount", "-l", str(rig.local)], check=True)
        with pytest.raises(MirrorHalted):
            await mirror.barrier(60)
        assert mirror.status().state is MirrorState.HALTED
        assert len(list(rig.far.iterdir())) == 20


@pytest.mark.root
async def test_17_a_full_disk_is_named_and_converges(rig: Rig) -> None:
    with _tmpfs(rig.home, 8):
        rig.write("old.bin").write_bytes(os.urandom(5 << 20))
        rig.write("main.py", "1\n")
        mirror = await rig.started()
        rig.write("new.bin").write_bytes(os.urandom(6 << 20))
        rig.write("main.py", "2\n")
        with pytest.raises(MirrorError) as caught:
            await mirror.barrier(60)
        told = caught.value.one_line()
        assert "No space left" in told and "new.bin" in told, told
        # What fits goes on; the old content of what does not is whole.
        assert (rig.far / "main.py").read_text() == "2\n"
        assert (rig.far / "old.bin").read_bytes() == (rig.local / "old.bin").read_bytes()
        assert "new.bin" in mirror.status().pending_paths
        (rig.local / "old.bin").unlink()
        await until(rig.equal, "space was made, and it went by itself", 90)
        await mirror.barrier(60)
        assert mirror.status().state is MirrorState.IN_SYNC
        await mirror.stop()


@contextmanager
def _unwritable(file: Path) -> Iterator[None]:
    """Nobody can replace it: immutable as root, in a closed directory as anybody else."""
    if os.geteuid() == 0:
        if subprocess.run(["chattr", "+i", str(file)], capture_output=True, check=False).returncode:
            pytest.skip("this file system has no immutable files, and root may write all others")
        try:
            yield
        finally:
            subprocess.run(["chattr", "-i", str(file)], check=True)
    else:
        mode = file.parent.stat().st_mode
        file.parent.chmod(0o500)
        try:
            yield
        finally:
            file.parent.chmod(mode)


@pytest.mark.root
async def test_18_one_unwritable_file_is_told_and_retried(rig: Rig) -> None:
    if os.geteuid() != 0:
        pytest.skip("what an ordinary user can close, rsync opens again by itself")
    rig.write("closed/stuck.py", "1\n")
    rig.write("main.py", "1\n")
    mirror = await rig.started()
    with _unwritable(rig.far / "closed/stuck.py"):
        rig.write("closed/stuck.py", "2\n")
        rig.write("main.py", "2\n")
        with pytest.raises(MirrorError, match=r"closed/stuck\.py"):
            await mirror.barrier(60)
        assert (rig.far / "main.py").read_text() == "2\n"
        assert (rig.far / "closed/stuck.py").read_text() == "1\n"
        status = mirror.status()
        assert status.state is MirrorState.PENDING and "closed/stuck.py" in status.pending_paths
    await until(rig.equal, "the retry, by itself", 90)
    await mirror.barrier(60)
    assert mirror.status().state is MirrorState.IN_SYNC


async def test_29_a_node_that_does_not_see_the_directory_proves_nothing(live_rig: Rig) -> None:
    """Its mount is missing, then only readable, then gone again: rsync goes by the login host."""
    rig = live_rig
    assert rig.node is not None
    node, seen = rig.node.client, False

    class ReadOnly(HeldFileAgent):
        """The node's agent, which may not write into the root."""

        def open(self, header: dict[str, object]) -> Channel:
            return super().open({**header, "root": str(rig.home / "no mount")})

    async def check(expected: Mapping[str, str]) -> list[str]:
        root = os.path.realpath(rig.far if seen else rig.home / "no mount")
        return list(await node.call("mirror.differing", root=root, expected=dict(expected)))

    rig.write("main.py", "1\n")
    rig.write("pkg/long.py", "12345\n")
    before = await rig.started()
    assert (await before.barrier(60)).by_node
    await before.stop()
    rig.node.host = ReadOnly(node, is_node=True)
    mirror = await rig.started(verify=lambda: check)
    with pytest.raises(MirrorError) as caught:
        await mirror.barrier(10)
    assert "2 differ: main.py, pkg/long.py" in caught.value.one_line()
    seen = True
    assert (await mirror.barrier(60)).proven == 2
    assert (await mirror.barrier(60)).proven == 0
    seen = False
    with pytest.raises(MirrorError) as caught:
        await mirror.barrier(10)
    assert "2 differ: main.py, pkg/long.py" in caught.value.one_line()


# -- 25: what the login shell is, and says -------------------------------------------------------


@pytest.fixture
async def shell_rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """A rig whose sshd is not running yet: the test says what the login shell is."""
    directory = tmp_path / "sshd"
    directory.mkdir(mode=0o700)
    server = Sshd(directory)
    made = Rig(server, tmp_path)
    yield made
    for mirror in made.mirrors:
        await mirror.stop()
    server.stop()
    server.check()


def _login_shell(rig: Rig, lines: str) -> None:
    """sshd gives every command to this script, as it would to the login shell with -c."""
    script = rig.sshd.directory / "shell"
    script.write_text(f"#!/bin/sh\n{lines}\n")
    script.chmod(0o755)
    with (rig.sshd.directory / "sshd_config").open("a") as config:
        config.write(f"ForceCommand {script}\n")
    rig.sshd.start()


@pytest.mark.parametrize("shell", ["bash", "dash", "tcsh", "fish", "zsh"])
async def test_25_any_login_shell(shell_rig: Rig, shell: str) -> None:
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    rig = shell_rig
    _login_shell(rig, f'exec {shutil.which(shell)} -c "$SSH_ORIGINAL_COMMAND"')
    names = [
        "it's.py",
        "a b.py",
        'q"q.py',
        "dollar$HOME.py",
        "back\\slash.py",
        "bang!x.py",
        "-x.py",
    ]
    for name in names:
        rig.write(name, f"{name}\n")
    rig.write("sub/dir/x.py")
    mirror = await rig.started()
    assert rig.equal()
    rig.write(names[0], "edited\n")
    (rig.local / names[1]).unlink()
    await mirror.barrier(60)
    assert rig.equal()


_TALKERS = {
    "fish": (".config/fish/config.fish", "echo hello"),
    "tcsh": (".cshrc", "echo hello"),
    "zsh": (".zshenv", "echo hello"),
}


async def _files_go_both_ways(rig: Rig, said: list[str]) -> None:
    """A first copy, an edit and a pull, whatever the login shell prints meanwhile."""
    rig.write(".gitignore", "out/\n")
    rig.write("main.py", "1\n")
    mirror = await rig.started(say=said.append)
    rig.write("main.py", "2\n")
    await mirror.barrier(60)
    assert rig.equal()
    brought = os.urandom(300_000)
    (rig.far / "out").mkdir()
    (rig.far / "out/weights").write_bytes(brought)
    await mirror.pull([str(rig.local / "out")])
    assert (rig.local / "out/weights").read_bytes() == brought


@pytest.mark.parametrize("shell", _TALKERS)
async def test_25_a_shell_that_talks_is_named_and_does_no_harm(shell_rig: Rig, shell: str) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    rig, said = shell_rig, list[str]()
    file, line = _TALKERS[shell]
    start_file = rig.sshd.directory / file
    start_file.parent.mkdir(parents=True, exist_ok=True)
    start_file.write_text(f"{line}\n")
    _login_shell(rig, f'SHELL={program} exec {program} -c "$SSH_ORIGINAL_COMMAND"')
    await _files_go_both_ways(rig, said)
    (told,) = said
    assert f"~/{file}" in told and "'hello'" in told and "sending by tar" in told


@pytest.mark.parametrize(
    "talk",
    [
        "echo Welcome to the cluster",
        "printf 'Quota: 12%%\\0\\n'; echo Motd >&2",
        "printf 'no newline \\033]0;title\\007'",
        "head -c 200000 /dev/zero",
    ],
)
async def test_25_whatever_a_shell_prints(shell_rig: Rig, talk: str) -> None:
    rig, said = shell_rig, list[str]()
    _login_shell(rig, f'{talk}\nexport SHELL=/bin/odd\nexec sh -c "$SSH_ORIGINAL_COMMAND"')
    await _files_go_both_ways(rig, said)
    (told,) = said
    assert "start files that odd reads" in told and told.isprintable() and len(told) < 300


async def test_25_a_shell_that_talks_and_no_tar(shell_rig: Rig, tmp_path: Path) -> None:
    rig = shell_rig
    rig.sshd.start()
    with far_path(rig.sshd, tmp_path / "bin", without=("tar",)):
        config = rig.sshd.directory / "sshd_config"
        rig.sshd.stop()
        config.write_text(config.read_text().replace("ForceCommand ", "ForceCommand echo hello; "))
        rig.sshd.start()
        with pytest.raises(MissingProgram) as caught:
            await rig.started()
    told = caught.value.one_line()
    assert "'hello'" in told and "has no tar" in told and "only" in told


async def test_25_a_shell_that_talks_on_stderr_works(shell_rig: Rig) -> None:
    rig = shell_rig
    _login_shell(rig, 'echo "maintenance on Tuesday" >&2\nexec sh -c "$SSH_ORIGINAL_COMMAND"')
    rig.write("main.py", "1\n")
    mirror = await rig.started()
    rig.write("main.py", "2\n")
    await mirror.barrier(60)
    assert rig.equal()
