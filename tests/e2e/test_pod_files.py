"""The project's files are the same in each pod of a session, and proven there; on the stand-in."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import processes
from tests.support.kube_rig import KubeProject, running_stand_in
from tests.support.tkrig import PATIENCE_S, eventually, made_project
from tunnelkit.lab.kube.stand_in import StandIn


@pytest.fixture(scope="module")
def pods() -> Iterator[StandIn]:
    with running_stand_in() as cluster:
        yield cluster


@pytest.fixture
async def project(pods: StandIn) -> AsyncIterator[KubeProject]:
    async with made_project(lambda base: KubeProject(pods, base)) as made:
        yield made


def stateful(pods: StandIn, name: str, count: int = 3) -> list[Path]:
    """The roots in the pods of a new StatefulSet."""
    owner = ("StatefulSet", name)
    made = [pods.make_pod(f"{name}-{number}", owner=owner) for number in range(count)]
    return [one / "home" / "work" for one in made]


def texts(roots: list[Path], name: str) -> list[str | None]:
    files = (root / name for root in roots)
    return [one.read_text() if one.exists() else None for one in files]


def states(status: dict[str, Any]) -> dict[str | None, str]:
    return {one["node"]: one["state"] for one in status["mirrors"]}


def records(project: KubeProject) -> list[Path]:
    """What each mirror that writes keeps about what it has sent."""
    return list((project.base / "s").rglob("mirror-*.sqlite"))


def kill_session(project: KubeProject) -> None:
    for one in project.laptop_processes():
        if "daemon" in " ".join(one.argv) or "proxy" in one.argv:
            os.kill(one.pid, signal.SIGKILL)


def files_of(pod: Path) -> list[str]:
    """What is in a pod's own directories, but the programs of its image."""
    found = (path.relative_to(pod) for path in pod.rglob("*") if not path.is_dir())
    return sorted(str(path) for path in found if path.parts[0] not in ("bin", "log"))


async def test_a_save_is_in_all_pods_and_proven(pods: StandIn, project: KubeProject) -> None:
    """Also: another root, an edit in one pod only, cut streams, a killed session, `tk down`."""
    roots = stateful(pods, "own")
    data = project.base / "data"
    data.mkdir()
    (data / "d.txt").write_text("d")
    volume = project.base / "volume"
    project.configure(f'[[mirror.also]]\nlocal = "{data}"\nremote = "{volume}"\n')
    before = [processes_of(pods, f"own-{number}") for number in range(3)]
    await project.up("sts/own")
    project.write("a.py", "one\n")
    done = await project.tk("sync", "--wait", "--json")
    assert texts(roots, "a.py") == ["one\n"] * 3
    assert done.json["unproven"] is None
    status = await project.status()
    assert states(status) == {None: "in_sync", "own-1": "in_sync", "own-2": "in_sync"}
    # The second root is on a volume of all.
    assert len(status["mirrors"]) == 6 and len(records(project)) == 3 + 1
    assert (volume / "d.txt").read_text() == "d"

    (roots[1] / "a.py").write_text("there\n")
    project.write("a.py", "here\n")
    refused = await project.tk("sync", "--wait", code=9)
    assert "own-1: 1 mirrored file was changed on the cluster: a.py" in refused.err
    assert texts(roots, "a.py") == ["here\n", "there\n", "here\n"]
    assert "own-1: conflict" in (await project.tk("status")).out
    await project.tk("sync", "--theirs", "a.py")
    await project.tk("sync", "--wait")
    assert (project.dir / "a.py").read_text() == "there\n"
    assert texts(roots, "a.py") == ["there\n"] * 3

    pods.ask("POST", "/standin/cut", {})
    project.write("a.py", "after the cut\n")
    await project.tk("sync", "--wait")
    assert texts(roots, "a.py") == ["after the cut\n"] * 3

    kill_session(project)
    project.write("a.py", "after the kill\n")
    await project.up("sts/own")
    await project.tk("sync", "--wait")
    assert texts(roots, "a.py") == ["after the kill\n"] * 3
    done = await project.tk("down")
    assert "goes on" in done.out or "go on" in done.out, done
    for root in roots:
        names = ("2.py", "a.py", "tunnelkit.toml")
        assert files_of(root.parents[1]) == [f"home/work/{name}" for name in names]
    assert [processes_of(pods, f"own-{number}") for number in range(3)] == before


def processes_of(pods: StandIn, pod: str) -> Any:
    return pods.ask("POST", "/standin/processes", {"pod": pod})


async def test_pods_that_share_a_disk_without_the_first(
    pods: StandIn, project: KubeProject
) -> None:
    """As on one node. Of two, the other one writes once the first of them is gone."""
    roots = stateful(pods, "node")
    volume = project.base / "volume"
    volume.mkdir()
    for root in roots[1:]:
        root.parent.mkdir(parents=True, exist_ok=True)
        root.symlink_to(volume)
    await project.up("sts/node")
    project.write("a.py", "one\n")
    await project.tk("sync", "--wait")
    assert texts([roots[0], volume], "a.py") == ["one\n"] * 2
    assert len(records(project)) == 2
    reasons = [one["reason"] for one in (await project.status())["mirrors"]]
    (words,) = [one for one in reasons if one is not None]
    writer = words.rpartition(" ")[2]
    assert words.startswith("on a volume") and writer in ("node-1", "node-2")
    pods.remove_pod(writer)
    project.write("a.py", "two\n")

    async def names() -> list[str]:
        return [one["node"] for one in (await project.status())["mirrors"] if one["node"]]

    async with asyncio.timeout(PATIENCE_S):
        while writer in await names():
            await asyncio.sleep(0.1)
    await project.tk("sync", "--wait")
    assert texts([roots[0], volume], "a.py") == ["two\n"] * 2
    assert len(records(project)) == 3
    await project.tk("down")
    # The next writer has no record of what the first one sent: it keeps what it replaces.
    left = sorted(one.name for one in volume.iterdir())
    assert left == [".tk-replaced", "2.py", "a.py", "tunnelkit.toml"]


async def test_a_volume_of_all_pods_is_written_once_and_proven_in_each(
    pods: StandIn, tmp_path: Path
) -> None:
    shared = tmp_path / "volume" / "work"
    async with made_project(lambda base: KubeProject(pods, base, remote=str(shared))) as project:
        stateful(pods, "vol")
        await project.up("sts/vol")
        owner = shared.with_name(".work.tk-owner").read_text()
        project.write("a.py", "one\n")
        await project.tk("sync", "--wait")
        assert (shared / "a.py").read_text() == "one\n"
        await eventually(
            lambda: not list(shared.glob(".tk-volume-*")), "the marks in the volume are removed"
        )
        # One mirror: one owner, one record of what was sent.
        assert shared.with_name(".work.tk-owner").read_text() == owner
        assert len(records(project)) == 1
        status = await project.status()
        assert set(states(status).values()) == {"in_sync"}
        reasons = {one["node"]: one["reason"] for one in status["mirrors"]}
        volume = "on a volume, written by vol-0"
        assert reasons == {None: None, "vol-1": volume, "vol-2": volume}
        # A pod that does not answer is no proof.
        where = str(pods.root / "pods" / "vol-2")
        agents = [one for one in processes.look().values() if "serve" in one.argv]
        (agent,) = [one.pid for one in agents if where in " ".join(one.argv)]
        os.kill(agent, signal.SIGSTOP)
        try:
            project.write("a.py", "two\n")
            refused = await project.tk("sync", "--wait", "--timeout", "1", code=12)
        finally:
            os.kill(agent, signal.SIGCONT)
        assert "vol-2: the compute node has not read the files back within 1 s" in refused.err
        await project.tk("sync", "--wait")
        assert shared.with_name(".work.tk-owner").read_text() == owner
        await project.tk("down")
        assert sorted(one.name for one in shared.parent.iterdir()) == ["work"]


async def test_a_pod_that_cannot_be_written_is_named(pods: StandIn, project: KubeProject) -> None:
    """It does not hold the session up; a barrier says it, and works once that is put right."""
    roots = stateful(pods, "ro", 2)
    roots[1].parent.mkdir(parents=True, exist_ok=True)
    roots[1].write_text("in the way")
    status = await project.up("sts/ro")
    assert status["state"] == "ready"
    refused = await project.tk("sync", "--wait", code=None)
    assert refused.code and "ro-1: the remote directory ~/work can't be used" in refused.err
    assert "mount a volume that all pods share" in refused.err
    assert states(await project.status()) == {None: "in_sync", "ro-1": "stale"}
    assert "warning: ro-1: the remote directory" in project.session_log(1 << 20)
    roots[1].unlink()
    await project.tk("sync", "--wait")
    assert texts(roots, "2.py") == [(project.dir / "2.py").read_text()] * 2
    await project.tk("down")


async def test_a_replaced_pod_gets_the_files_again(pods: StandIn, project: KubeProject) -> None:
    """While files are saved; then the first pod is replaced, and all mirrors begin again."""
    roots = stateful(pods, "new")
    await project.up("sts/new")
    await project.tk("sync", "--wait")
    for number in (1, 0):
        pod = f"new-{number}"
        pods.remove_pod(pod)
        for count in range(3):
            project.write("a.py", f"{pod} {count}\n")
        pods.make_pod(pod, owner=("StatefulSet", "new"))
        project.write("b.py", pod)
        async with asyncio.timeout(PATIENCE_S):
            while texts(roots, "2.py").count(None):
                await project.tk("sync", "--wait", code=None)
        assert texts(roots, "b.py") == [pod] * 3
        assert texts(roots, "a.py") == [f"{pod} 2\n"] * 3
    await project.tk("down")
