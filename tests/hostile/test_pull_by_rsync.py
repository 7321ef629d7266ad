"""`tk pull` and `tk sync --theirs` from a login host whose rsync sends what it likes."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.login_host import LoginHost
from tests.support.mirror_rig import Rig, needs_rsync
from tunnelkit.errors import MirrorError, TunnelkitError
from tunnelkit.mirror.mirror import Mirror
from tunnelkit.mirror.tree.ignore import REPLACED_DIR

pytestmark = needs_rsync

FOLDER = {"name": "results", "mode": stat.S_IFDIR | 0o755}


def sent(name: str, size: int = 5, **more: Any) -> dict[str, Any]:
    return {"name": name, "size": size, **more}


def symlink(name: str, target: str) -> dict[str, Any]:
    return {"name": name, "size": 5, "mode": stat.S_IFLNK | 0o777, "target": target}


@pytest.fixture(params=["its checks", "no checks"])
def laptop_rsync(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An rsync of the laptop that looks at the names that come, and one that does not: before
    3.2.5 there were no such checks."""
    if request.param == "no checks":
        directory = tmp_path / "laptop programs"
        directory.mkdir()
        real = shlex.quote(shutil.which("rsync") or "rsync")
        program = directory / "rsync"
        program.write_text(
            f'#!/bin/sh\n[ "$1" = --version ] && exec {real} "$@"\n'
            f'exec {real} --trust-sender "$@"\n'
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")


@pytest.fixture
def rig(rsync_rig: Rig, laptop_rsync: None) -> Rig:
    """Without an agent, so that files go by the transfer."""
    return rsync_rig


async def asked(rig: Rig, host: LoginHost, *entries: dict[str, Any]) -> Mirror:
    rig.write(".gitignore", "results/\n")
    rig.write(".env", "SECRET\n")
    host.sends_by_rsync(entries)
    mirror = await rig.started()
    rig.write("results/real.txt", "12345", far=True)
    return mirror


def everything(root: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in root.rglob("*")}


async def refused(rig: Rig, mirror: Mirror, *reasons: str) -> None:
    """The pull ends in one line that names the host; nothing is left of what was sent."""
    before = everything(rig.local.parent)
    with pytest.raises(MirrorError) as caught:
        await mirror.pull([str(rig.local / "results")])
    said = f"{caught.value} {caught.value.cause or ''}"
    assert any(why in said for why in reasons), said
    assert rig.remote.destination() in said
    assert "\n" not in said and "\x1b" not in said
    assert everything(rig.local.parent) == before


async def test_what_was_asked_for_comes(rig: Rig, login_host: LoginHost) -> None:
    """So the sender of these tests is one that rsync understands."""
    mirror = await asked(rig, login_host, FOLDER, sent("results/real.txt", mode=0o100666))
    report = await mirror.pull([str(rig.local / "results")])
    assert report.pulled == ("results/real.txt",)
    assert (rig.local / "results/real.txt").read_bytes() == b"EVILE"
    assert stat.S_IMODE((rig.local / "results/real.txt").stat().st_mode) == 0o644
    assert not (rig.local / REPLACED_DIR).exists()


@pytest.mark.parametrize("name", ["results/other.txt", ".env", "main.py", ".git/hooks/pre-commit"])
async def test_a_file_that_was_not_asked_for(rig: Rig, login_host: LoginHost, name: str) -> None:
    above = [{**FOLDER, "name": "/".join(name.split("/")[:end])}
             for end in range(1, name.count("/") + 1)]  # fmt: skip
    mirror = await asked(rig, login_host, *above, sent(name))
    await refused(rig, mirror, "not asked for")


@pytest.mark.parametrize("name", ["results/../../VICTIM/keys", "../VICTIM/keys", "/VICTIM/keys"])
async def test_a_name_that_leads_out(rig: Rig, login_host: LoginHost, name: str) -> None:
    mirror = await asked(rig, login_host, FOLDER, sent(name))
    (rig.local.parent / "VICTIM").mkdir()
    (rig.local.parent / "VICTIM/keys").write_text("mine\n")
    await refused(rig, mirror, "not asked for", "broke off")


async def test_a_file_through_a_link_that_came_first(rig: Rig, login_host: LoginHost) -> None:
    victim = rig.local.parent / "VICTIM"
    victim.mkdir()
    (victim / "real.txt").write_text("mine\n")
    mirror = await asked(rig, login_host, symlink("results", str(victim)), sent("results/real.txt"))
    before = everything(rig.local.parent)
    with pytest.raises(TunnelkitError):
        await mirror.pull([str(rig.local / "results")])
    assert everything(rig.local.parent) == before


async def test_a_link_that_leads_out_where_a_file_was_listed(
    rig: Rig, login_host: LoginHost
) -> None:
    mirror = await asked(rig, login_host, FOLDER, symlink("results/real.txt", "../../VICTIM"))
    report = await mirror.pull([str(rig.local / "results")])
    assert report.pulled == ()
    assert not (rig.local / "results").exists()


@pytest.mark.parametrize("kind", [stat.S_IFIFO, stat.S_IFSOCK])
async def test_no_file(rig: Rig, login_host: LoginHost, kind: int) -> None:
    mirror = await asked(rig, login_host, FOLDER, sent("results/real.txt", 0, mode=kind | 0o644))
    report = await mirror.pull([str(rig.local / "results")])
    assert report.pulled == ()
    assert not (rig.local / "results").exists()


async def test_ten_gigabytes_where_five_bytes_were_listed(rig: Rig, login_host: LoginHost) -> None:
    bomb = sent("results/real.txt", 5, fill=10 << 30)
    mirror = await asked(rig, login_host, FOLDER, bomb)
    await refused(rig, mirror, "more than it had listed")


async def test_ten_gigabytes_in_its_own_list(rig: Rig, login_host: LoginHost) -> None:
    mirror = await asked(rig, login_host, FOLDER, sent("results/real.txt", 10 << 30))
    await refused(rig, mirror, "more than it had listed")


async def test_two_hundred_thousand_files(rig: Rig, login_host: LoginHost) -> None:
    mirror = await asked(rig, login_host, FOLDER, sent("results/n", 0, repeat=200_000))
    await refused(rig, mirror, "more than it had listed", "not asked for")


async def test_theirs_brings_the_conflict_alone(rig: Rig, login_host: LoginHost) -> None:
    rig.write("main.py", "here\n")
    mirror = await asked(rig, login_host, sent("main.py"), sent("zother.py"))
    rig.write("main.py", "there\n", far=True)
    rig.write("main.py", "edited here\n")
    with pytest.raises(MirrorError, match=r"not believed: .*not asked for"):
        await mirror.resolve([str(rig.local / "main.py")], theirs=True)
    assert (rig.local / "main.py").read_text() == "edited here\n"
    assert not (rig.local / "zother.py").exists()
    assert not (rig.local / REPLACED_DIR).exists()
    login_host.sends_by_rsync([symlink("main.py", "/etc/passwd")])
    with pytest.raises(MirrorError, match="did not come"):
        await mirror.resolve([str(rig.local / "main.py")], theirs=True)
    assert (rig.local / "main.py").read_text() == "edited here\n"
    login_host.sends_by_rsync([sent("main.py")])
    report = await mirror.resolve([str(rig.local / "main.py")], theirs=True)
    assert (rig.local / "main.py").read_bytes() == b"EVILE"
    assert report.replaced_dir is not None
    assert (Path(report.replaced_dir) / "main.py").read_text() == "edited here\n"


async def test_theirs_takes_no_configuration_of_git(rig: Rig) -> None:
    rig.write(".tkignore", "!.git/\n")
    mine = rig.write("lib/.git/config", "mine\n")
    rig.write("lib/a.py", "mine\n")
    mirror = await rig.started()
    for path in ("lib/.git/config", "lib/a.py"):
        rig.write(path, "of theirs\n", far=True)
        rig.write(path, "mine, too\n")
    with pytest.raises(MirrorError, match=r"nothing is taken: lib/\.git/config"):
        await mirror.resolve([str(rig.local / "lib")], theirs=True)
    assert mine.read_text() == "mine, too\n"
    await mirror.resolve([str(rig.local / "lib/a.py")], theirs=True)
    await mirror.resolve([str(mine)], theirs=True)
    assert mine.read_text() == "of theirs\n"


async def test_theirs_by_a_bomb(rig: Rig, login_host: LoginHost) -> None:
    rig.write("main.py", "here\n")
    mirror = await asked(rig, login_host, sent("main.py", 5, fill=10 << 30))
    rig.write("main.py", "there\n", far=True)
    rig.write("main.py", "edited here\n")
    with pytest.raises(MirrorError, match="more than it had listed"):
        await mirror.resolve([str(rig.local / "main.py")], theirs=True)
    assert (rig.local / "main.py").read_text() == "edited here\n"
    assert not (rig.local / REPLACED_DIR).exists()
