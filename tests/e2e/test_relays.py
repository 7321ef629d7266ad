"""Relays on a real Slurm: a job of two nodes, and debuggees that dial in on the second one.

What starts them here is a program inside the job that stands in the agent's place, with the
agent's own code: so each failure can be made by hand.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import Seen
from tests.support.tkrig import Project, Terminal, project_on
from tunnelkit import lab as tk_lab
from tunnelkit.errors import ExitCode
from tunnelkit.lab import LabInfo

pytestmark = pytest.mark.slow

#: Runs in the job as a child of the agent. argv: a function of it.
DRIVER = """\
import asyncio, json, os, signal, sys, time

with open(f"/proc/{os.getppid()}/cmdline", "rb") as file:
    agent = [word.decode() for word in file.read().split(b"\\0")]
AGENT = next(word for word in agent if word.endswith(".zip"))
NAME = agent[agent.index("serve") + 1]
sys.path.insert(0, AGENT)

from tunnelkit.agent.processes.table import ProcessTable
from tunnelkit.agent.nodes.relay_process import RelayFailed
from tunnelkit.agent.nodes.relay_pool import RelayPool, other_nodes

def tell(**what):
    print(json.dumps(what), flush=True)

class Driver:
    def __init__(self):
        self.table = ProcessTable()
        self.table.start()
        self.relays = RelayPool(
            self.table, [sys.executable, "-I", "-S", AGENT, "relay", NAME])
        self.come = asyncio.Queue()
        self.lost = asyncio.Queue()

    async def start(self):
        self.nodes = await other_nodes(self.table)
        await self.relays.start(self.nodes)
        return await self.relays.open(
            5, lambda sock, who: self.come.put_nowait((sock, who)),
            lambda node, why: self.lost.put_nowait((node, why)))

    def srun(self, *argv, **env):
        null = os.open(os.devnull, os.O_RDONLY)
        return self.table.spawn(
            ["srun", *argv], cwd=os.getcwd(), env={**os.environ, **env},
            stdin=null, stdout=1, stderr=2)

    async def close(self):
        await self.relays.stop()
        await self.table.end_all(0.0)

async def dial(driver):
    ports = await driver.start()
    relay = await driver.relays.info("node2")
    # Neither its CPUs nor its GPUs are missing to a step that takes the whole job.
    client = driver.srun(
        "-N2", "-n2", "--gpus-per-node=2", "-c4", sys.executable, "client.py", NAME)
    sock, who = await asyncio.wait_for(driver.come.get(), 60)
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(sock, b"from the agent\\n")
    said = b""
    while data := await loop.sock_recv(sock, 65536):
        said += data
    how = await asyncio.wait_for(client.exited, 60)
    tell(nodes=driver.nodes, ports=ports, relay=relay, who=who, said=said.decode(),
         code=how.code, tag=client.tag)

async def echo(driver):
    await driver.start()
    client = driver.srun("-N1", "-n1", "-wnode2", sys.executable, "echo.py", NAME)
    sock, who = await asyncio.wait_for(driver.come.get(), 60)
    loop = asyncio.get_running_loop()
    times = {}
    for size in (20, 1500, 20000, 2000000):
        taken = []
        for _ in range(10):
            data, got, began = os.urandom(size), b"", time.monotonic()
            sending = asyncio.ensure_future(loop.sock_sendall(sock, data))
            while len(got) < size:
                got += await loop.sock_recv(sock, 1 << 20)
            await sending
            assert got == data
            taken.append(time.monotonic() - began)
        times[size] = min(taken)
    sock.close()
    await asyncio.wait_for(client.exited, 30)
    tell(times=times)

async def kill(driver):
    await driver.start()
    client = driver.srun("-N1", "-n1", "-wnode2", sys.executable, "echo.py", NAME)
    sock, who = await asyncio.wait_for(driver.come.get(), 60)
    os.kill((await driver.relays.info("node2"))["pid"], signal.SIGKILL)
    node, why = await asyncio.wait_for(driver.lost.get(), 30)
    end = await asyncio.get_running_loop().sock_recv(sock, 10)
    await asyncio.wait_for(client.exited, 30)
    await driver.relays.start(driver.nodes)
    again = await driver.relays.info("node2")
    tell(node=node, why=why, end=end.decode(), again=again)

async def refused(driver):
    try:
        await driver.relays.start(["node7"])
    except RelayFailed as failure:
        tell(failure=str(failure))

async def send_signal(driver):
    await driver.start()
    client = driver.srun("-N1", "-n1", "-wnode2", sys.executable, "echo.py", NAME)
    sock, who = await asyncio.wait_for(driver.come.get(), 60)
    await driver.relays.signal("node2", who["pid"], "SIGINT", client.tag)
    end = await asyncio.get_running_loop().sock_recv(sock, 10)
    tell(end=end.decode(), tag=who["tag"] == client.tag)

async def busy(driver):
    step = driver.srun(
        "-N2", "-n2", "--gpus-per-node=2", "-c4",
        "sh", "-c", "touch on.$SLURMD_NODENAME; sleep 600")
    while not (os.path.exists("on.node1") and os.path.exists("on.node2")):
        await asyncio.sleep(0.02)
    began = time.monotonic()
    await driver.start()
    took = time.monotonic() - began
    tell(took=took, running=not step.exited.done())

async def stay(driver):
    ports = await driver.start()
    tell(pid=os.getpid(), ports=ports)
    await asyncio.Event().wait()

async def main():
    driver = Driver()
    try:
        await globals()[sys.argv[1]](driver)
    finally:
        await driver.close()

asyncio.run(main())
"""

#: Finds its node's port as a debuggee does; a rank on the first node, without a relay, is idle.
CLIENT = """\
import os, socket, sys

node = os.environ["SLURMD_NODENAME"]
if node == "node2":
    with open(f"/tmp/tunnelkit-{os.getuid()}/{sys.argv[1]}.5.{node}.port") as file:
        sock = socket.create_connection(("127.0.0.1", int(file.read())))
    sock.sendall(b"hello from " + node.encode() + b", then ")
    with sock.makefile("rb") as lines:
        sock.sendall(lines.readline())
"""

ECHO = """\
import os, socket, sys

node = os.environ["SLURMD_NODENAME"]
with open(f"/tmp/tunnelkit-{os.getuid()}/{sys.argv[1]}.5.{node}.port") as file:
    sock = socket.create_connection(("127.0.0.1", int(file.read())))
sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
while data := sock.recv(1 << 20):
    sock.sendall(data)
"""


async def up(project: Project) -> None:
    """A session on two nodes, all of both."""
    project.write("driver.py", DRIVER)
    project.write("client.py", CLIENT)
    project.write("echo.py", ECHO)
    status = await project.up("node1", "--nodes", "2", "--gpus", "2", "--cpus", "4")
    assert status["job"]["nodes"] == ["node1", "node2"]


@pytest.fixture
async def job(project: Project) -> AsyncIterator[Project]:
    await up(project)
    yield project


async def drive(job: Project, what: str) -> dict[str, Any]:
    done = await job.tk("run", "python", "driver.py", what)
    answer: dict[str, Any] = json.loads(done.out.splitlines()[-1])
    return answer


def relays_of(job: Project) -> list[Seen]:
    """Relays and the sruns that run them."""
    return [one for one in job.cluster_processes() if "relay" in one.argv]


def port_files(job: Project) -> list[Path]:
    return sorted(Path(f"/tmp/tunnelkit-{os.getuid()}").glob(f"tk-{job.dir.name}-*.port"))


async def until(condition: Callable[[], bool], what: str, deadline_s: float = 30.0) -> None:
    ends = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < ends, what
        await asyncio.sleep(0.05)


async def steps(job: Project) -> list[str]:
    """The job's steps that Slurm knows, but the batch step and the other node's agent."""
    argv = [*tk_lab.on("login", job.lab.dir), "squeue", "-s", "-h", "-o", "%i %j"]
    process = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    return [line for line in out.decode().splitlines() if not line.endswith(("batch", "tk-agent"))]


async def staying(job: Project) -> tuple[Terminal, int]:
    """A driver that has relays and keeps them; its pid."""
    terminal = await job.terminal("run", "python", "driver.py", "stay")
    pid = int((await terminal.line(r'"pid": (\d+)'))[1])
    assert len(port_files(job)) == 1
    there = relays_of(job)
    assert there != []
    # On a real cluster the agent sees no process of another node: here it must not find the
    # relay, whose /proc it shares, by the tag of what it has started itself.
    tagged = [one for one in there if any(word.startswith("TK_PROCESS=") for word in one.environ)]
    assert {one.program for one in tagged} == {"srun"}
    assert len(there) > len(tagged)
    return terminal, pid


async def a_process_on_the_second_node_dials_in(job: Project) -> None:
    told = await drive(job, "dial")
    assert told["nodes"] == ["node2"]
    assert told["relay"]["node"] == "node2"
    assert told["said"] == "hello from node2, then from the agent\n"
    assert told["code"] == 0
    who = told["who"]
    assert who["node"] == "node2"
    assert who["tag"] == told["tag"]
    assert who["environ"]["SLURM_PROCID"] == "1"
    await until(lambda: not relays_of(job), "a relay stayed")
    assert port_files(job) == []
    assert await steps(job) == []


async def test_a_process_on_the_second_node_talks_with_the_agents_end(job: Project) -> None:
    await a_process_on_the_second_node_dials_in(job)


@pytest.mark.root
async def test_nodes_of_their_own_networks_do_too(netns_lab: LabInfo) -> None:
    if netns_lab.scheduler != "slurm":
        pytest.skip("Slurm is not installed")
    async with project_on(netns_lab) as project:
        await up(project)
        await a_process_on_the_second_node_dials_in(project)


async def test_messages_of_any_size_are_not_held_up(job: Project) -> None:
    times = (await drive(job, "echo"))["times"]
    # Nagle's algorithm in srun costs 44 ms for anything above 1 KiB, each way.
    assert times["20"] < 0.03
    assert times["1500"] < 0.03
    assert times["20000"] < 0.03


async def test_a_step_that_has_taken_the_whole_job_hinders_no_relay(job: Project) -> None:
    told = await drive(job, "busy")
    assert told["running"]
    assert told["took"] < 20


async def test_a_killed_relay_is_told_and_can_be_started_anew(job: Project) -> None:
    told = await drive(job, "kill")
    assert told["node"] == "node2"
    assert re.search("kill|signal 9|exit code", told["why"], re.IGNORECASE)
    assert told["end"] == ""
    assert told["again"]["node"] == "node2"
    assert list(told["again"]["loops"]) == ["5"]


async def test_a_node_that_is_not_ours_is_refused_in_slurms_words(job: Project) -> None:
    failure = (await drive(job, "refused"))["failure"]
    assert failure.startswith("no relay of the agent on node7: srun: error: ")


async def test_a_signal_reaches_a_rank_on_the_other_node(job: Project) -> None:
    assert await drive(job, "send_signal") == {"end": "", "tag": True}


async def test_relays_end_when_the_agent_is_killed(job: Project) -> None:
    terminal, pid = await staying(job)
    os.kill(pid, signal.SIGKILL)
    await until(lambda: not relays_of(job), f"left: {relays_of(job)}")
    await until(lambda: not port_files(job), f"left: {port_files(job)}")
    await terminal.ended()
    assert await steps(job) == []


async def test_down_leaves_nothing_on_either_node(job: Project) -> None:
    await staying(job)
    await job.tk("down")
    await job.nothing_left()


async def test_a_job_cancelled_from_outside_leaves_nothing(job: Project) -> None:
    await staying(job)
    number = (await job.status())["job"]["id"]
    argv = [*tk_lab.on("login", job.lab.dir), "scancel", number]
    await (await asyncio.create_subprocess_exec(*argv)).wait()
    await until(lambda: not relays_of(job), f"left: {[str(one) for one in relays_of(job)]}")
    assert port_files(job) == []


@pytest.mark.parametrize("count", ["0", "-1"])
async def test_a_job_of_no_nodes_is_no_job(project: Project, count: str) -> None:
    done = await project.tk("up", "--nodes", count, code=int(ExitCode.CONFIG))
    assert "--nodes: bad value" in done.err
