"""Ranks that tk has not started, in the user's own job or pods: where they are, and F5 on one."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab_fixtures import ssh
from tests.support.attach_rig import check_attach
from tests.support.kube_rig import KubeProject, running_stand_in
from tests.support.pty_terminal import on_a_terminal
from tests.support.tkrig import PATIENCE_S, Project, line_of, made_project
from tunnelkit.lab.kube.stand_in import StandIn

pytestmark = pytest.mark.slow

SPIN = """\
import os
import time

turns = 0
while not os.path.exists("enough"):
    turns += 1
    time.sleep(0.01)
"""
STOP = line_of(SPIN, "turns += 1")


@pytest.fixture(scope="module", autouse=True)
def can_attach() -> None:
    check_attach()


@pytest.fixture(scope="module")
def pods() -> Iterator[StandIn]:
    with running_stand_in() as cluster:
        yield cluster


@pytest.fixture
async def in_pods(pods: StandIn, tmp_path: Path) -> AsyncIterator[KubeProject]:
    """Two pods that train already, and a third one of somebody else's."""
    (tmp_path / "spin.py").write_text(SPIN)
    command = ["sh", "-c", f"cd {tmp_path} && exec python spin.py"]
    for rank, pod in enumerate(("fit-0", "fit-1", "other-0")):
        env = {"RANK": str(rank % 2), "WORLD_SIZE": "2"}
        app = pod.partition("-")[0]
        limits: dict[str, Any] = {"probe": {"httpGet": {"port": 80}}, "deadline_s": 3600}
        pods.make_pod(pod, command=command, env=env, **limits, app=app)
    async with made_project(lambda base: KubeProject(pods, base, remote=str(tmp_path))) as made:
        made.write("spin.py", SPIN)
        yield made
    for pod in ("fit-0", "fit-1", "other-0"):
        pods.remove_pod(pod)


async def seen_and_entered(project: Project, rank: int, node: str) -> Any:
    """`tk ranks` shows them, `tk attach` and F5 enter one, and it runs on. The answer of attach."""
    title = r"^2 ranks on 2 nodes . python spin.py . no debugger"
    while not re.search(title, (shown := (await project.tk("ranks", code=None)).out)):
        assert " ranks " not in shown, shown
    shown = (await project.tk("ranks", "--all")).out
    assert re.search(rf"^ +{rank} +{node} ", shown, re.MULTILINE), shown
    attached = (await project.tk("attach", str(rank), "--json", timeout_s=PATIENCE_S)).json
    assert (attached["rank"], attached["node"]) == (rank, node)
    editor, _, frame = await project.f5_to_stop(STOP, file="spin.py")
    assert int(await editor.evaluate("turns", frame)) > 0
    stopped = (await project.tk("ranks", str(rank))).out
    assert re.search(r"spin.py:\d+ <module> +stopped by the debugger", stopped), stopped
    await editor.request("disconnect", terminateDebuggee=False)
    await editor.drop()
    return attached


async def at_login(project: Project, command: str) -> str:
    return (await asyncio.to_thread(ssh, project.lab, "login", command)).strip()


async def test_pods_that_train_already(in_pods: KubeProject) -> None:
    await in_pods.up("-l", "app=fit")
    attached = await seen_and_entered(in_pods, 1, "fit-1")
    assert "livenessProbe (HTTP) may fail at a breakpoint" in attached["risk"]
    assert 3000 < (await in_pods.status())["job"]["time_left_s"] <= 3600
    await in_pods.tk("down")
    api = f"/api/v1/namespaces/{in_pods.cluster.namespace}/pods/fit-1"
    assert in_pods.cluster.ask("GET", api)["status"]["phase"] == "Running"


async def test_one_console_is_on_all_attached_ranks(project: Project) -> None:
    """The advice of `tk interrupt` is enough for it."""
    project.write("spin.py", SPIN)
    await project.up("--cpus", "3")
    terminal = await project.terminal("run", "srun", "-n", "3", "python", "spin.py")
    while not (await project.tk("ranks", code=None)).out.startswith("3 ranks"):
        pass
    await project.tk("attach", "0-1", timeout_s=PATIENCE_S)
    alone = await project.tk("interrupt", "0-1", code=10)
    assert "open `tk console` first" in alone.err
    async with on_a_terminal(project, "console", "0-1") as screen:
        await screen.shows("2 ranks on 1 node")
        await screen.shows(r"\(tk 0-1\)")
        # One that comes later is there, too.
        await project.tk("attach", "2", timeout_s=PATIENCE_S)
        assert "0-1 paused at spin.py" in (await project.tk("interrupt", "0-1")).out
        await screen.shows("ranks 0-1 stopped: spin.py")
        while (await project.tk("interrupt", "2", code=None)).code:
            pass
        await screen.shows("rank 2 stopped: spin.py")
        screen.type("editor 1\n")
        await screen.shows(rf"attach an editor to 127\.0\.0\.1:{project.port + 1}\b")
        screen.type("q\n")
        assert await screen.ended() == 0
    inside = (await project.tk("console", "0-2", "-c", "p turns > 0", "-c", "c")).out
    assert re.search(r"^0-2 +True$", inside, re.MULTILINE), inside
    project.remote("enough").touch()
    assert await terminal.ended() == 0


async def test_a_job_of_the_user_s_own(project: Project) -> None:
    """As one would submit it, without a thought of tk."""
    project.write("spin.py", SPIN)
    await project.up("node1")
    remote = str(project.remote())
    await project.tk("down")
    wrap = f"--wrap 'cd {remote} && srun -n2 --ntasks-per-node=1 python spin.py'"
    words = f"sbatch --parsable -N2 -c1 -t 10 -o /dev/null {wrap}"
    job = await at_login(project, words)
    try:
        while (await at_login(project, f"squeue -h -j {job} -o %T")) != "RUNNING":
            await asyncio.sleep(0.1)
        await project.up("--attach-job", job)
        await seen_and_entered(project, 1, "node2")
        await project.tk("down")
        assert await at_login(project, f"squeue -h -j {job} -o %T") == "RUNNING"
    finally:
        await at_login(project, f"scancel {job}")
