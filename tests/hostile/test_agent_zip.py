"""Zips of agents: those in use stay, those that are gone or damaged come back by themselves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.hostile.other_version import Store, aged
from tests.support import processes
from tests.support.tkrig import Project, eventually

pytestmark = pytest.mark.slow

_OLD_DAYS = 400


async def reconnected(project: Project) -> None:
    """The session gets over a cut, with the same agent."""
    before = await project.status()
    processes.kill(project.ssh_processes())
    done = await project.tk("run", "echo", "it goes on")
    assert "it goes on" in done.out
    after = await project.status()
    assert after["agent"]["pid"] == before["agent"]["pid"]
    assert after["state"] == "ready"


@pytest.mark.logins(8)
@pytest.mark.parametrize("newer_first", [False, True])
async def test_two_versions_leave_each_others_zips(
    project: Project, other_version: Project, store: Store, newer_first: bool
) -> None:
    first, second = (other_version, project) if newer_first else (project, other_version)
    nobodys = "agent-" + "0" * 32
    store.file(f"{nobodys}.zip", _OLD_DAYS)
    store.file(f"{nobodys}-cpython-38.zip", _OLD_DAYS)
    store.file(f"{nobodys}.lease", _OLD_DAYS)
    older = store.file("agent-" + "1" * 32 + ".zip", _OLD_DAYS)
    await first.up("node1")
    assert not list(store.dir.glob(f"{nobodys}*"))
    assert older.exists(), "of a tk without leases: it may be in use"
    assert older.with_suffix(".lease").exists()
    for path in store.dir.glob("agent-*.zip"):
        aged(path, _OLD_DAYS)
    await second.up("node2")
    assert len({path.name[:38] for path in store.dir.glob("agent-*.zip")}) == 3
    await reconnected(first)
    await reconnected(second)


@pytest.mark.logins(8)
async def test_start_attach_and_resume_renew_the_lease(project: Project, store: Store) -> None:
    lease = store.zip.with_suffix(".lease")

    async def renewed() -> None:
        await eventually(lambda: lease.stat().st_mtime > since, "the lease was renewed")
        aged(lease, 1)

    await project.up("node1")
    since = aged(lease, 1).stat().st_mtime
    processes.kill(project.ssh_processes())
    await project.tk("run", "true")
    await renewed()
    processes.kill(project.laptop_processes())
    await project.up()
    await renewed()


@pytest.mark.logins(5)
@pytest.mark.parametrize("how", ["gone", "cut", "zeros"])
async def test_a_zip_that_is_lost_under_a_session_comes_back(
    project: Project, store: Store, how: str
) -> None:
    await project.up("node1")
    for path in store.dir.glob("agent-*.zip"):
        damage(path, how)
    await reconnected(project)
    assert store.is_whole()


@pytest.mark.parametrize("how", ["cut", "other bytes", "zeros"])
async def test_a_damaged_zip_heals_before_a_job_is_spent(
    project: Project, store: Store, how: str
) -> None:
    await project.up("node1")
    await project.tk("down")
    await eventually(store.compiled, "the byte code was written")
    for path in (store.zip, *store.compiled()):
        damage(path, how)
    jobs = await project.do_on_login("squeue", "-h", "-t", "all", "-o", "%i")
    status = await project.up("node1")
    assert store.is_whole()
    spent = set((await project.do_on_login("squeue", "-h", "-t", "all", "-o", "%i")).split())
    assert spent - set(jobs.split()) == {status["job"]["id"]}
    await eventually(store.compiled, "the byte code was written once more")


@pytest.mark.parametrize("how", ["cut", "other bytes"])
async def test_damaged_byte_code_alone_does_no_harm(
    project: Project, store: Store, how: str
) -> None:
    await project.up("node1")
    await project.tk("down")
    await eventually(store.compiled, "the byte code was written")
    (compiled,) = store.compiled()
    whole = compiled.read_bytes()
    damage(compiled, how)
    await project.up("node1")
    await project.tk("down")
    await project.up("node1")
    await eventually(
        lambda: compiled.exists() and compiled.stat().st_size == len(whole), "it was written again"
    )


def damage(path: Path, how: str) -> None:
    """Damage it as a crash, a quota or a disk does; its time stays."""
    data = path.read_bytes()
    times = path.stat()
    if how == "gone":
        path.unlink()
        return
    half = len(data) // 2
    if how == "cut":
        data = data[:half]
    elif how == "zeros":
        data = data[:half] + bytes(len(data) - half)
    else:
        data = (
            data[:half] + bytes(255 - byte for byte in data[half : -half // 2]) + data[-half // 2 :]
        )
    path.write_bytes(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
