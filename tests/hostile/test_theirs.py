"""What `tk pull` and `tk sync --theirs` keep aside stays in the project; and `--theirs` by a
tar stream of a login host that lies."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from tests.hostile.login_host import LoginHost, file, link
from tests.support.mirror_rig import Rig, needs_rsync
from tunnelkit.errors import MirrorError
from tunnelkit.mirror.mirror import Mirror
from tunnelkit.mirror.tree.ignore import REPLACED_DIR

pytestmark = needs_rsync


@pytest.fixture
def rig(rsync_rig: Rig) -> Rig:
    """Without an agent, so that files go by the transfer."""
    return rsync_rig


@pytest.fixture
def victim(rig: Rig) -> Path:
    directory = rig.local.parent / "VICTIM"
    directory.mkdir()
    (directory / "main.py").write_text("mine\n")
    return directory


async def conflict(rig: Rig) -> Mirror:
    rig.write(".gitignore", "results/\n")
    rig.write("main.py", "here\n")
    mirror = await rig.started()
    rig.write("results/x", "12345", far=True)
    rig.write("main.py", "there\n", far=True)
    rig.write("main.py", "edited here\n")
    return mirror


async def nothing_comes(rig: Rig, mirror: Mirror, victim: Path, why: str, path: str) -> None:
    with pytest.raises(MirrorError) as caught:
        if path == "main.py":
            await mirror.resolve([str(rig.local / path)], theirs=True)
        else:
            await mirror.pull([str(rig.local / path)])
    assert why in f"{caught.value} {caught.value.cause or ''}"
    assert (rig.local / "main.py").read_text() == "edited here\n"
    assert not (rig.local / "results").exists()
    assert [(one.name, one.read_text()) for one in victim.iterdir()] == [("main.py", "mine\n")]


@pytest.mark.parametrize("path", ["main.py", "results"])
async def test_a_symlink_where_files_are_kept(rig: Rig, victim: Path, path: str) -> None:
    mirror = await conflict(rig)
    (rig.local / REPLACED_DIR).symlink_to(victim)
    await nothing_comes(rig, mirror, victim, f"{REPLACED_DIR} is a symlink", path)


@pytest.mark.parametrize("way", ["symlink", "file"])
async def test_something_in_place_of_what_broke_off(rig: Rig, victim: Path, way: str) -> None:
    mirror = await conflict(rig)
    kept = rig.local / REPLACED_DIR
    kept.mkdir()
    if way == "symlink":
        (kept / "partial").symlink_to(victim)
    else:
        (kept / "partial").write_text("a file\n")
    await nothing_comes(rig, mirror, victim, "partial is a symlink", "results")


async def test_a_symlink_in_place_of_the_list_for_git(rig: Rig, victim: Path) -> None:
    mirror = await conflict(rig)
    kept = rig.local / REPLACED_DIR
    kept.mkdir()
    (kept / ".gitignore").symlink_to(victim / "main.py")
    await nothing_comes(rig, mirror, victim, "gitignore is a symlink", "main.py")


async def test_theirs_by_a_hostile_tar_stream(
    rig: Rig, login_host: LoginHost, victim: Path
) -> None:
    mirror = await conflict(rig)
    aim = str(victim / "main.py")
    for why, *sent in (
        ("did not come", file("../VICTIM/main.py"), file("other.py")),
        ("did not come", link("./main.py", aim)),
        ("neither a file", link("./main.py", aim, tarfile.LNKTYPE)),
        ("neither a file", link("./main.py", "", tarfile.CHRTYPE)),
        ("more than it had listed", file("./main.py", b"x" * (66 << 20))),
    ):
        login_host.sends(sent)
        await nothing_comes(rig, mirror, victim, str(why), "main.py")
        assert not (rig.local / "other.py").exists()
        assert not (rig.local / REPLACED_DIR).exists()
    login_host.sends([link("./main.py", aim), file("./main.py", b"EVIL\n")])
    report = await mirror.resolve([str(rig.local / "main.py")], theirs=True)
    assert report.replaced_dir is not None
    assert (Path(report.replaced_dir) / "main.py").read_text() == "edited here\n"
    assert not (rig.local / "main.py").is_symlink()
    assert (victim / "main.py").read_text() == "mine\n"
