# ruff: noqa: F811 - fixtures are imported
"""Ranks on the nodes of a PBS or Torque job: one F5 is on all of them."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator

import pytest

from tests.e2e.test_pbs import pbs_lab, project, server  # noqa: F401 - fixtures
from tests.e2e.test_ranks import child
from tests.support.pbs_standin.rig import StandIn
from tests.support.tkrig import Project, line_of
from tunnelkit import lab as tk_lab
from tunnelkit.lab import LabInfo
from tunnelkit.lab.layout import Layout

pytestmark = pytest.mark.slow

PROGRAM = """\
    import os
    rank = int(os.environ["PMI_RANK"])
    total = rank * 2
    print(f"rank {rank} on {os.uname().nodename} done", flush=True)
    """
STOP = line_of(PROGRAM, "total = rank * 2")

#: As Hydra does it: ranks by blocks over the job's nodes, the far ones by ssh, each with the whole
#: environment. `mpirun -n COUNT PROGRAM...`
MPIRUN = f"""\
#!{sys.executable} -IS
import json, os, shlex, socket, subprocess, sys

START = '''import json, os, sys
told = json.loads(sys.stdin.readline())
os.chdir(told["cwd"])
os.execvpe(told["argv"][0], told["argv"], told["env"])'''
count = int(sys.argv[2])
with open(os.environ["PBS_NODEFILE"]) as file:
    nodes = list(dict.fromkeys(file.read().split()))
ranks = []
for rank in range(count):
    node = nodes[rank * len(nodes) // count]
    start = [sys.executable, "-I", "-S", "-c", START]
    if node != socket.gethostname():
        start = ["ssh", "--", node, shlex.join(start)]
    env = dict(os.environ, PMI_RANK=str(rank), PMI_SIZE=str(count))
    one = subprocess.Popen(start, stdin=subprocess.PIPE, text=True)
    print(json.dumps(dict(cwd=os.getcwd(), argv=sys.argv[3:], env=env)), file=one.stdin)
    one.stdin.close()
    ranks.append(one)
sys.exit(max(one.wait() for one in ranks))
"""


@pytest.fixture
def mpirun(pbs_lab: LabInfo) -> Iterator[None]:
    path = Layout(pbs_lab.dir).bin / "mpirun"
    path.write_text(MPIRUN)
    path.chmod(0o755)
    yield
    path.unlink()


@pytest.mark.root  # hosts have names of their own
@pytest.mark.usefixtures("mpirun")
@pytest.mark.parametrize("dialect", ["pbs", "torque"])
async def test_ranks_of_both_nodes_stop_in_one_f5(
    project: Project,
    server: StandIn,
    dialect: str,
) -> None:
    server.reset(dialect=dialect)
    project.write("train.py", PROGRAM)
    await project.up("--nodes", "2", "--cpus", "1")
    terminal = await project.loop("mpirun", "-n", "4", "python", "train.py")
    first = await project.f5(STOP, file="train.py")
    opened = await asyncio.gather(*(child(project, first, STOP) for _ in range(3)))
    sessions = {0: first, **{rank: session for rank, _, session in opened}}
    assert sorted(sessions) == [0, 1, 2, 3]
    assert {name for _, name, _ in opened} == {
        "rank 1 · node1", "rank 2 · node2", "rank 3 · node2"
    }  # fmt: skip
    for rank, session in sessions.items():
        thread, frame = await session.stopped(60)
        assert frame["line"] == STOP
        assert await session.evaluate("rank", frame) == str(rank)
    # The relay is a part of the job.
    [relay] = [
        one for one in project.cluster_processes()
        if "relay" in one.argv and one.program.startswith("python")
    ]  # fmt: skip
    assert os.getsid(relay.pid) in server.jobs()[server.first]["attached"]
    for session in sessions.values():
        thread = (await session.request("threads"))["threads"][0]["id"]
        await session.request("continue", threadId=thread)
    await terminal.line(r"run 1 · ended: exit code 0")
    for rank, node in enumerate(("node1", "node1", "node2", "node2")):
        assert f"rank {rank} on {node} done" in terminal.text
    await project.tk("down")
    await project.nothing_left()


@pytest.fixture
def node2_refuses_ssh(pbs_lab: LabInfo) -> Iterator[None]:
    tk_lab.stop_daemon("sshd-node2", pbs_lab.dir)
    yield
    tk_lab.start_daemon("sshd-node2", pbs_lab.dir)


@pytest.mark.root
@pytest.mark.usefixtures("mpirun", "node2_refuses_ssh")
async def test_where_no_ssh_leads_between_the_nodes_it_is_said(project: Project) -> None:
    project.write("train.py", PROGRAM)
    await project.up("--nodes", "2", "--cpus", "1")
    terminal = await project.loop("mpirun", "-n", "1", "python", "train.py", armed=False)
    await terminal.line(
        r"ranks on other nodes run free, not debugged: no relay of the agent on node2: .*refused"
    )
    await terminal.line("armed")
    editor = await project.f5(STOP, file="train.py")
    thread, _ = await editor.stopped(60)
    await editor.finish(thread)
    await terminal.line(r"run 1 · ended: exit code 0")
