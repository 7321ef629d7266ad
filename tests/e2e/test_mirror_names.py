"""Names that differ in case or in Unicode form only; and targets inside one another."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.mirror_rig import Rig, RigHost, needs_rsync, tree
from tunnelkit.errors import MirrorError
from tunnelkit.mirror.api import MirrorState
from tunnelkit.mirror.mirror import Mirror
from tunnelkit.model import MirrorSpec

pytestmark = needs_rsync

NFC, NFD = "\u00e9t\u00e9.py", "e\u0301te\u0301.py"


def far_names(rig: Rig) -> set[str]:
    return {os.fsdecode(name) for name in tree(rig.far)}


async def test_a_new_spelling_arrives_exactly(rig: Rig) -> None:
    rig.write("Main.py", "main\n")
    rig.write(NFC, "summer\n")
    rig.write("Pkg/mod.py", "mod\n")
    mirror = await rig.started()
    (rig.local / "Main.py").rename(rig.local / "main.py")
    (rig.local / NFC).rename(rig.local / NFD)
    (rig.local / "Pkg").rename(rig.local / "pkg")
    await mirror.barrier(30)
    assert far_names(rig) == {"main.py", NFD, "pkg", "pkg/mod.py"}
    assert rig.equal()


async def test_names_that_an_exact_file_system_tells_apart_are_all_sent(rig: Rig) -> None:
    for number, name in enumerate(("a.py", "A.py", NFC, NFD)):
        rig.write(name, f"{number}\n")
    mirror = await rig.started()
    assert mirror.status().state is MirrorState.IN_SYNC
    assert rig.equal()
    assert not [name for name in os.listdir(rig.far) if name.startswith(".tk-probe")]


@pytest.fixture
def folding_cluster(rig: Rig, tmp_path: Path) -> Iterator[Rig]:
    """A cluster whose file system does not tell upper from lower case."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    programs = [shutil.which(name, path=path) for name in ("mkntfs", "lowntfs-3g")]
    if None in programs or os.geteuid() != 0:
        pytest.skip("a file system that folds case takes root and: apt install ntfs-3g")
    image, place = tmp_path / "image", rig.home / "tk"
    place.mkdir()
    with image.open("wb") as disk:
        disk.truncate(16 << 20)
    subprocess.run([str(programs[0]), "-q", "-F", str(image)], check=True, capture_output=True)
    made = [str(programs[1]), "-o", "ignore_case", str(image), str(place)]
    if subprocess.run(made, capture_output=True, check=False).returncode:
        pytest.skip("this root may not mount (a container without CAP_SYS_ADMIN)")
    try:
        yield rig
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


async def test_a_folding_cluster_gets_neither_of_a_pair(folding_cluster: Rig) -> None:
    rig = folding_cluster
    rig.write("Same.txt", "upper\n")
    rig.write("same.txt", "lower\n")
    rig.write("plain.txt", "plain\n")
    mirror = await rig.started()
    status = mirror.status()
    assert status.state is MirrorState.PENDING
    assert set(status.pending_paths) == {"Same.txt", "same.txt"}
    assert "upper and lower case" in (status.reason or "")
    assert far_names(rig) == {"plain.txt"}
    with pytest.raises(MirrorError, match=r"Same\.txt, same\.txt") as caught:
        await mirror.barrier(30)
    assert "does not tell" in (caught.value.cause or "")

    # One of them goes: the other comes. One comes back: what is there stays as it is.
    (rig.local / "Same.txt").unlink()
    await mirror.barrier(30)
    assert (rig.far / "same.txt").read_text() == "lower\n"
    rig.write("SAME.txt", "shouting\n")
    with pytest.raises(MirrorError, match=r"SAME\.txt"):
        await mirror.barrier(30)
    assert (rig.far / "same.txt").read_text() == "lower\n"
    # And a file that only changes its spelling is not deleted with its old one.
    (rig.local / "SAME.txt").unlink()
    (rig.local / "same.txt").rename(rig.local / "Same.TXT")
    (rig.local / "Same.TXT").write_text("renamed\n")
    await mirror.barrier(30)
    assert (rig.far / "Same.TXT").read_text() == "renamed\n"
    assert sorted(far_names(rig)) == ["plain.txt", "same.txt"]  # listed in lower case there
    assert not (rig.far / ".tk-replaced").exists()


def other(rig: Rig, remote: str) -> Mirror:
    """A mirror of another directory on the same laptop."""
    local = rig.local.with_name("other project")
    local.mkdir(exist_ok=True)
    (local / "other.py").write_text("other\n")
    mirror = Mirror(MirrorSpec(str(local), remote), rig.remote, RigHost(), state_dir=rig.state)
    rig.mirrors.append(mirror)
    return mirror


@pytest.mark.parametrize(
    ("remote", "word"),
    [
        ("~/tk/my project/inside", "inside"),
        ("~/tk/my project/in/side/deep/down", "inside"),
        ("~/tk", "around"),
        ("~/link/inside", "inside"),
    ],
)
async def test_a_target_in_or_around_another_is_refused(rig: Rig, remote: str, word: str) -> None:
    rig.write("main.py")
    mirror = await rig.started()
    (rig.home / "link").symlink_to("tk/my project")
    with pytest.raises(MirrorError, match=f"is {word}") as caught:
        await other(rig, remote).start()
    assert str(rig.local) in (caught.value.cause or "")
    assert ".my project.tk-owner" in (caught.value.hint or "")
    assert not list(rig.home.rglob("other.py"))
    owners = [path.name for path in rig.home.rglob("*.tk-owner")]
    assert owners == [".my project.tk-owner"]
    rig.write("main.py", "2\n")
    await mirror.barrier(30)
    assert (rig.far / "main.py").read_text() == "2\n"
    # Once the first has ended, the place is free.
    await mirror.stop()
    await other(rig, remote).start()


async def test_the_owner_s_file_inside_counts_too(rig: Rig) -> None:
    """Where the parent can't be written, the owner's file lies in the root itself."""
    rig.write("main.py")
    mirror = await rig.started()
    held = rig.far.parent / f".{rig.far.name}.tk-owner"
    held.rename(rig.far / ".tk-owner")
    for remote in ("~/tk/my project/inside", "~/tk"):
        with pytest.raises(MirrorError, match=r"is (inside|around)"):
            await other(rig, remote).start()
    await mirror.stop()


async def test_neighbours_and_names_that_only_begin_alike_are_no_matter(rig: Rig) -> None:
    rig.write("main.py")
    await rig.started()
    for remote in ("~/tk/my project 2", "~/tk/my"):
        mirror = other(rig, remote)
        await mirror.start()
        await mirror.stop()


async def test_two_at_once_one_inside_the_other_never_both(rig: Rig) -> None:
    rig.write("main.py")
    both = [rig.mirror(), other(rig, "~/tk/my project/inside")]
    results = await asyncio.gather(*(one.start() for one in both), return_exceptions=True)
    errors = [result for result in results if result is not None]
    assert errors and all(isinstance(error, MirrorError) for error in errors), results
    running = [one for one in both if one.status().state is MirrorState.IN_SYNC]
    assert len(running) <= 1
