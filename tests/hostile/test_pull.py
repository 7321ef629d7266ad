"""`tk pull` from a login host that lies writes only what was asked for, below the project."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

from tests.hostile.login_host import LoginHost, file, link
from tests.support.mirror_rig import Rig, needs_rsync
from tunnelkit.errors import MirrorError
from tunnelkit.mirror.mirror import Mirror

pytestmark = needs_rsync  # and its sshd


@pytest.fixture
def rig(rsync_rig: Rig) -> Rig:
    """Without an agent, so that files go by the transfer."""
    return rsync_rig


@pytest.fixture
def victim(rig: Rig) -> Path:
    """What is the laptop's own, beside the project."""
    directory = rig.local.parent / "VICTIM"
    directory.mkdir()
    (directory / "authorized_keys").write_text("mine\n")
    return directory


async def asked(rig: Rig) -> Mirror:
    rig.write(".gitignore", "results/\n")
    mirror = await rig.started()
    rig.write("results/real.txt", far=True)
    return mirror


async def refused(rig: Rig, mirror: Mirror, why: str) -> None:
    """The pull ends in one line that names the host; nothing is left in the project."""
    before = everything(rig.local)
    with pytest.raises(MirrorError) as caught:
        await mirror.pull([str(rig.local / "results")])
    said = f"{caught.value} {caught.value.cause or ''}"
    assert why in said
    assert rig.remote.destination() in said
    assert "\n" not in said and "\x1b" not in said
    assert everything(rig.local) == before


def everything(root: Path) -> set[str]:
    return {str(path) for path in root.rglob("*")}


@pytest.mark.parametrize(
    "name",
    [
        "./results/../../VICTIM/authorized_keys",
        "../VICTIM/authorized_keys",
        "/etc/tk-evil",
        "./main.py",
        "./results2/x",
        "./results//x",
        "./results/./x",
        "",
        "./results/.tk-replaced/x",
        "./\x1b]0;evil\x07",
    ],
)
async def test_a_name_that_was_not_asked_for(
    rig: Rig, login_host: LoginHost, victim: Path, name: str
) -> None:
    mirror = await asked(rig)
    login_host.lists([("./results/real.txt", 2), (name, 5)])
    login_host.sends([file("./results/real.txt"), file(os.path.normpath(name or "x"))])
    await refused(rig, mirror, "not asked for")
    assert (victim / "authorized_keys").read_text() == "mine\n"


async def test_links_through_links(rig: Rig, login_host: LoginHost, victim: Path) -> None:
    mirror = await asked(rig)
    trick = [
        link("results/d/up", ".."),
        link("results/d/upup", "up/../.."),
        link("results/d/out", "upup/.."),
        file("results/d/out/VICTIM/authorized_keys"),
    ]
    login_host.lists([("./" + info.name, 5) for info, _ in trick])
    login_host.sends(trick)
    # The directory stands where the last link should be.
    with pytest.raises(MirrorError, match="not all files came"):
        await mirror.pull([str(rig.local / "results")])
    assert (rig.local / "results/d/out/VICTIM/authorized_keys").is_file()
    assert (victim / "authorized_keys").read_text() == "mine\n"
    root = str(rig.local.resolve())
    for path in rig.local.rglob("*"):
        assert os.path.realpath(path).startswith(root), path


async def test_a_link_that_was_here_before(rig: Rig, login_host: LoginHost, victim: Path) -> None:
    mirror = await asked(rig)
    (rig.local / "results").mkdir()
    (rig.local / "results/way").symlink_to("../inside")
    (rig.local / "inside").mkdir()
    login_host.lists([("./results/way/x", 5)])
    login_host.sends([file("./results/way/x")])
    with pytest.raises(MirrorError, match="not pulled"):
        await mirror.pull([str(rig.local / "results")])
    assert list((rig.local / "inside").iterdir()) == []


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.LNKTYPE])
async def test_no_file(rig: Rig, login_host: LoginHost, victim: Path, kind: bytes) -> None:
    mirror = await asked(rig)
    login_host.lists([("./results/x", 5)])
    login_host.sends([link("./results/x", str(victim / "authorized_keys"), kind)])
    await refused(rig, mirror, "neither a file nor a symlink")


async def test_ten_gigabytes_where_one_megabyte_was_listed(rig: Rig, login_host: LoginHost) -> None:
    mirror = await asked(rig)
    login_host.lists([("./results/x", 1 << 20)])
    info = tarfile.TarInfo("./results/x")
    info.size = 10 << 30
    # It never ends by itself: the laptop ends it.
    login_host.sends_bytes(info.tobuf(), login_host.hangs)
    await refused(rig, mirror, "more than it had listed")


async def test_a_name_of_ten_gigabytes(rig: Rig, login_host: LoginHost) -> None:
    mirror = await asked(rig)
    login_host.lists([("./results/x", 1 << 20)])
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 1 << 32
    login_host.sends_bytes(info.tobuf(tarfile.GNU_FORMAT), login_host.hangs)
    await refused(rig, mirror, "a header of")


async def test_a_sparse_file(rig: Rig, login_host: LoginHost) -> None:
    mirror = await asked(rig)
    login_host.lists([("./results/x", 1 << 20)])
    info = tarfile.TarInfo("./results/x")
    info.type = tarfile.GNUTYPE_SPARSE
    login_host.sends_bytes(info.tobuf(tarfile.GNU_FORMAT), login_host.hangs)
    await refused(rig, mirror, "sparse")


async def test_a_stream_without_an_end(rig: Rig, login_host: LoginHost) -> None:
    mirror = await asked(rig)
    login_host.lists([("./results/x", 1)])
    login_host.sends_bytes(b"", "exec cat /dev/zero")
    await refused(rig, mirror, "more than it had listed")


async def test_a_list_without_an_end(rig: Rig, login_host: LoginHost) -> None:
    mirror = await asked(rig)
    login_host.program("find", r"yes '1 ./results/x' | tr '\n' '\0'")
    await refused(rig, mirror, "it lists more than")


async def test_two_names_of_one_file_both_come(rig: Rig, login_host: LoginHost) -> None:
    mirror = await asked(rig)
    os.link(rig.far / "results/real.txt", rig.far / "results/second.txt")
    report = await mirror.pull([str(rig.local / "results")])
    assert set(report.pulled) == {"results/real.txt", "results/second.txt"}


async def test_no_hook_for_git_comes_with_all(rig: Rig, login_host: LoginHost) -> None:
    mirror = await asked(rig)
    hook = "./.git/hooks/post-checkout"
    login_host.lists([("././results/real.txt", 2), ("./" + hook, 5)])
    login_host.sends([file("./results/real.txt"), file(hook)])
    report = await mirror.pull([str(rig.local)])
    assert report.pulled == ("results/real.txt",)
    assert not (rig.local / ".git").exists()


REPOSITORIES = [
    ("results/.git/HEAD", "results/.git/config"),
    ("results/a/b/.GIT",),
    ("results/.g\u200cit/config",),
    ("results/git~1/config",),
    ("results/.git. /config",),
    ("results/.hg/hgrc",),
    ("results/HEAD", "results/config", "results/objects/x", "results/refs/x"),
    ("results/c/HEAD", "results/c/config", "results/c/commondir"),
]


@pytest.mark.parametrize("paths", REPOSITORIES)
async def test_no_repository_comes_with_a_directory(
    rig: Rig, login_host: LoginHost, paths: tuple[str, ...]
) -> None:
    mirror = await asked(rig)
    login_host.lists([("./" + path, 5) for path in (*paths, "results/d/real.txt")])
    login_host.sends([file("./" + path) for path in (*paths, "results/d/real.txt")])
    report = await mirror.pull([str(rig.local / "results")])
    here = {path for path in paths if (rig.local / path).exists()}
    assert here == set()
    assert set(paths) <= set(report.owned)


async def test_no_bare_repository_comes_in_parts(rig: Rig, login_host: LoginHost) -> None:
    mirror = await asked(rig)
    for part in (["results/HEAD"], ["results/objects/x"], ["results/refs/x", "results/config"]):
        login_host.lists([("./" + path, 5) for path in part])
        login_host.sends([file("./" + path) for path in part])
        report = await mirror.pull([str(rig.local / "results")])
    assert set(report.owned) == {"results/refs/x", "results/config"}
    assert not (rig.local / "results/config").exists()


async def test_a_repository_here_stays_as_it_is(rig: Rig) -> None:
    rig.write(".gitignore", "lib/\n")
    mine = rig.write("lib/.git/config", "mine\n")
    os.utime(mine, (1, 1))
    mirror = await rig.started()
    rig.write("lib/.git/config", "theirs\n", far=True)
    report = await mirror.pull([str(rig.local / "lib")])
    assert report.owned == ("lib/.git/config",)
    assert mine.read_text() == "mine\n"
    await mirror.pull([str(rig.local / "lib/.git")])
    assert mine.read_text() == "theirs\n"


BIG_BYTES = 9 << 20


async def big_file(rig: Rig, login_host: LoginHost) -> Mirror:
    """A host that lists one file which is worth a transfer of its own."""
    mirror = await asked(rig)
    (rig.far / "results/big.bin").write_bytes(os.urandom(BIG_BYTES))
    login_host.lists([("./results/big.bin", BIG_BYTES)])
    return mirror


async def test_a_big_file_that_is_a_thousand_times_as_big(rig: Rig, login_host: LoginHost) -> None:
    mirror = await big_file(rig, login_host)
    login_host.program("stat", "echo 81a4 10737418240 0")
    await refused(rig, mirror, "it sends far more than it had listed")


async def test_a_big_file_without_an_end(rig: Rig, login_host: LoginHost) -> None:
    """What is more than asked for is not read, and the digest is another one."""
    mirror = await big_file(rig, login_host)
    login_host.program("head", "exec cat /dev/zero")
    await refused(rig, mirror, "changed while it was fetched")


async def test_a_big_file_that_turns_into_a_link(
    rig: Rig, login_host: LoginHost, victim: Path
) -> None:
    mirror = await big_file(rig, login_host)
    login_host.program("stat", "echo a1ff 9437184 0")
    await refused(rig, mirror, "is no file there any more")
    assert (victim / "authorized_keys").read_text() == "mine\n"
