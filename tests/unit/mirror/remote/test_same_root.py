"""Is the root of two pods one directory? Asked by the real scripts, in directories of this one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from tunnelkit.mirror.remote import same_root
from tunnelkit.mirror.remote.same_root import RootLook, RootMark
from tunnelkit.model import Completed


class Pod:
    """A host whose HOME is a directory of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.asked: list[str] = []
        home.mkdir(exist_ok=True)

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 30.0
    ) -> Completed:
        self.asked += argv
        child = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={"HOME": str(self.home), "PATH": "/usr/bin:/bin"},
        )
        out, err = await child.communicate(stdin)
        return Completed(child.returncode or 0, out, err)

    def remote_shell(self) -> list[str]:
        return []

    def destination(self) -> str:
        return self.home.name


@pytest.fixture
def first(tmp_path: Path) -> Pod:
    return Pod(tmp_path / "first")


@pytest.fixture
def second(tmp_path: Path) -> Pod:
    return Pod(tmp_path / "second")


async def test_a_volume_is_known_wherever_its_owner_file_lies(first: Pod, second: Pod) -> None:
    """As with a mount point: what is beside it is each pod's own."""
    root = first.home / "work"
    root.mkdir()
    (first.home / ".work.tk-owner").write_text("turn 1")
    (second.home / "work").symlink_to(root)
    mark = await same_root.mark(first, str(root))
    assert mark.is_there and mark.owner == "turn 1"
    seen = await same_root.look(second, "~/work", [mark])
    assert seen.sees([mark]) is mark
    assert seen.root == str(second.home / "work")
    assert not [one for one in second.asked if mark.secret in one], "it could just claim it"
    await same_root.unmark(first, mark)
    assert list(root.iterdir()) == []


async def test_roots_of_their_own_and_one_that_is_missing(first: Pod, second: Pod) -> None:
    root = first.home / "work"
    root.mkdir()
    mark = await same_root.mark(first, str(root))
    assert await same_root.look(second, "~/work", [mark]) == RootLook()
    (second.home / "work").mkdir()
    seen = await same_root.look(second, "~/work", [mark])
    assert seen.root and seen.sees([mark]) is None and seen.shares_owner([mark]) is None
    assert not list(second.home.glob("work/*"))


async def test_directories_of_two_disks_with_one_owner_file(first: Pod, second: Pod) -> None:
    """A disk of the pod's own is mounted below a volume: two mirrors would share their owner."""
    for pod in (first, second):
        (pod.home / "work").mkdir()
        (pod.home / ".work.tk-owner").write_text("turn 1")
    mark = await same_root.mark(first, str(first.home / "work"))
    seen = await same_root.look(second, "~/work", [mark])
    assert seen.sees([mark]) is None
    assert seen.shares_owner([mark]) is mark


async def test_a_claim_without_the_secret_is_none() -> None:
    mark = RootMark("/w", "name", "secret", "turn 1", is_there=True)
    unwritten = RootMark("/w", "name", "", "", is_there=False)
    for text in ("", "name", "secre", "turn 1"):
        look = RootLook("/w", (text,))
        assert look.sees([mark]) is None and look.sees([unwritten]) is None
    assert RootLook("/w", (), "").shares_owner([unwritten]) is None


async def test_a_mark_that_cannot_be_put_is_said(first: Pod) -> None:
    (first.home / "work").write_text("no directory")
    assert not (await same_root.mark(first, str(first.home / "work"))).is_there
