"""The agent's side of relays: debuggees of other nodes come as local sockets, failures as words."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.processes import until
from tests.unit.agent.relay_rig import Rig, is_alive, is_cut_off, process_table, read_all, relay_rig
from tests.unit.test_agent_zip import interpreters
from tunnelkit.agent.nodes.relay_pool import other_nodes, srun_step, step_environment
from tunnelkit.agent.nodes.relay_process import RelayFailed
from tunnelkit.agent.processes.table import TAG
from tunnelkit.mux.rpc import RpcError


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with relay_rig(tmp_path) as made:
        yield made


async def exchange(rig: Rig, port: int) -> dict[str, object]:
    """Dial in, carry bytes and ends both ways; the identity that came with it."""
    loop = asyncio.get_running_loop()
    client, sock, identity = await rig.dial(port)
    up, down = os.urandom(300_000), os.urandom(200_000)

    async def send(to: object, data: bytes) -> None:
        await loop.sock_sendall(to, data)  # type: ignore[arg-type]
        to.shutdown(1)  # type: ignore[attr-defined]

    _, _, came_up, came_down = await asyncio.gather(
        send(client, up), send(sock, down), read_all(sock), read_all(client)
    )
    assert came_up == up
    assert came_down == down
    return identity


@pytest.mark.parametrize("python", interpreters()[:2])
async def test_debuggees_of_every_node_come_as_local_sockets(tmp_path: Path, python: str) -> None:
    async with relay_rig(tmp_path, python) as rig:
        await rig.relays.start(["far1", "far2"])
        assert rig.relays.nodes == ["far1", "far2"]
        ports = await rig.open(7)
        assert sorted(ports) == ["far1", "far2"]
        for node, port in ports.items():
            identity = await exchange(rig, port)
            assert identity["node"] == node
            assert identity["pid"] == os.getpid()


async def test_the_port_is_told_by_a_private_file_as_long_as_the_loop_is_open(rig: Rig) -> None:
    await rig.relays.start(["far"])
    ports = await rig.open(3)
    (file,) = rig.files()
    assert file.name == f"{rig.name}.3.far.port"
    assert file.read_text() == f"{ports['far']}\n"
    assert file.stat().st_mode & 0o777 == 0o600
    client, sock, _ = await rig.dial(ports["far"])
    await rig.relays.close(3)
    assert rig.files() == []
    # Nobody else can take the port; who dials it late is hung up on. Who was in stays in.
    loop = asyncio.get_running_loop()
    with socket.create_connection(("127.0.0.1", ports["far"])) as late:
        late.setblocking(False)
        assert await loop.sock_recv(late, 1) == b""
    await loop.sock_sendall(client, b"still here")
    assert await loop.sock_recv(sock, 100) == b"still here"


async def test_small_and_large_messages_come_quickly(rig: Rig) -> None:
    await rig.relays.start(["far"])
    client, sock, _ = await rig.dial((await rig.open(1))["far"])
    loop = asyncio.get_running_loop()
    for size in (1, 1500, 20_000):
        await loop.sock_sendall(client, b"x" * size)
        got = 0
        while got < size:
            got += len(await loop.sock_recv(sock, 65536))


async def test_a_killed_relay_is_told_its_sockets_end_and_start_mends_it(rig: Rig) -> None:
    await rig.relays.start(["far", "other"])
    ports = await rig.open(1)
    client, sock, _ = await rig.dial(ports["far"])
    pid = (await rig.relays.info("far"))["pid"]
    os.kill(pid, signal.SIGKILL)
    node, why = await asyncio.wait_for(rig.lost.get(), 20)
    assert node == "far"
    assert "SIGKILL" in why
    assert await read_all(sock) == b""
    assert await is_cut_off(client)
    assert rig.relays.nodes == ["other"]
    with pytest.raises(RelayFailed, match="no relay of the agent on far"):
        await rig.relays.info("far")
    await rig.relays.start(["far", "other"])
    port = (await rig.relays.info("far"))["loops"]["1"]
    assert (await exchange(rig, port))["node"] == "far"


async def test_stop_leaves_no_process_and_no_file(rig: Rig) -> None:
    await rig.relays.start(["far1", "far2"])
    ports = await rig.open(1)
    client, sock, _ = await rig.dial(ports["far2"])
    pids = [(await rig.relays.info(node))["pid"] for node in rig.relays.nodes]
    await rig.relays.stop()
    assert [pid for pid in pids if is_alive(pid)] == []
    assert rig.files() == []
    assert rig.lost.empty()
    assert await read_all(sock) == b""
    assert await is_cut_off(client)
    with pytest.raises(RelayFailed, match="ending"):
        await rig.relays.start(["far1"])


async def test_signals_go_to_processes_of_the_loop_only(rig: Rig) -> None:
    await rig.relays.start(["far"])
    environment = {**os.environ, TAG: "123.00000001"}
    null = os.open(os.devnull, os.O_RDWR)
    # Told by `exited` of the table, which reaps all children of this process.
    sleeper = rig.table.spawn(
        ["sleep", "1000"], cwd="/", env=environment, stdin=null, stdout=null, stderr=null
    )
    os.close(null)
    # The environment of a process that has just begun is empty for a moment.
    until(lambda: TAG in Path(f"/proc/{sleeper.pid}/environ").read_text(), "its environment")
    with pytest.raises(RpcError, match=f"no process {sleeper.pid} of this loop"):
        await rig.relays.signal("far", sleeper.pid, "SIGINT", "123.00000001")
    with pytest.raises(RpcError, match="of this loop"):
        await rig.relays.signal("far", sleeper.pid, "SIGINT", "")
    with pytest.raises(RpcError, match="of this loop"):
        await rig.relays.signal("far", 1, "SIGINT", sleeper.tag)
    with pytest.raises(RpcError, match="no signal 'getpid'"):
        await rig.relays.signal("far", sleeper.pid, "getpid", sleeper.tag)
    assert not sleeper.exited.done()
    await rig.relays.signal("far", sleeper.pid, "SIGINT", sleeper.tag)
    assert (await asyncio.wait_for(sleeper.exited, 10)).signal == "SIGINT"


async def test_a_debuggee_with_an_enormous_environment_comes_through(rig: Rig) -> None:
    await rig.relays.start(["far"])
    port = (await rig.open(1))["far"]
    huge = {f"HUGE{number}": "\xfc" * 60_000 for number in range(4)}
    dial = f"import socket; s = socket.create_connection(('127.0.0.1', {port})); s.recv(1)"
    null = os.open(os.devnull, os.O_RDWR)
    process = rig.table.spawn(
        [sys.executable, "-c", dial], cwd="/", env={**huge, "RANK": "3"},
        stdin=null, stdout=null, stderr=null,
    )  # fmt: skip
    os.close(null)
    sock, identity = await asyncio.wait_for(rig.come.get(), 30)
    assert identity["pid"] == process.pid
    assert identity["tag"] == process.tag
    assert identity["environ"]["RANK"] == "3"
    assert "HUGE0" not in identity["environ"]
    sock.close()
    await asyncio.wait_for(process.exited, 10)


@pytest.mark.root
@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
async def test_another_user_is_hung_up_on(rig: Rig) -> None:
    await rig.relays.start(["far"])
    port = (await rig.open(1))["far"]
    dial = (
        "import os, socket; os.setgid(65534); os.setuid(65534)\n"
        f"s = socket.socket(); s.connect(('127.0.0.1', {port})); s.settimeout(10)\n"
        "try: raise SystemExit(7 if s.recv(10) == b'' else 1)\n"
        "except ConnectionResetError: raise SystemExit(7)"
    )
    null = os.open(os.devnull, os.O_RDWR)
    process = rig.table.spawn(
        [sys.executable, "-c", dial], cwd="/", env=os.environ, stdin=null, stdout=null, stderr=null
    )
    os.close(null)
    assert (await asyncio.wait_for(process.exited, 20)).code == 7
    assert (await rig.relays.info("far"))["refused_peers"] == 1
    assert rig.come.empty()


# -- what does not start ------------------------------------------------------


async def failure(tmp_path: Path, script: str, timeout_s: float = 20.0) -> RelayFailed:
    def step(node: str, argv: list[str]) -> list[str]:
        return ["sh", "-c", script, "step", *argv]

    async with relay_rig(tmp_path, step=step, timeout_s=timeout_s) as rig:
        with pytest.raises(RelayFailed) as caught:
            await rig.relays.start(["far"])
        assert rig.relays.nodes == []
    return caught.value


async def test_a_step_that_is_refused_is_told_with_its_node_and_reason(tmp_path: Path) -> None:
    script = (
        "echo 'srun: error: Unable to create step for job 7: Job/step already completing' >&2;"
        "echo 'srun: error: far: task 0: Exited with exit code 1' >&2; exit 1"
    )
    told = str(await failure(tmp_path, script))
    assert told.startswith("no relay of the agent on far: ")
    assert told.endswith("Unable to create step for job 7: Job/step already completing")


async def test_what_is_no_relay_is_told(tmp_path: Path) -> None:
    assert "exit code 3" in str(await failure(tmp_path, "exit 3"))
    assert "no such thing here" in str(await failure(tmp_path, "echo no such thing here"))


async def test_noise_before_the_hello_is_no_harm(tmp_path: Path) -> None:
    def step(node: str, argv: list[str]) -> list[str]:
        return ["sh", "-c", 'echo "Welcome to far"; exec "$@"', "step", *argv]

    async with relay_rig(tmp_path, step=step) as rig:
        await rig.relays.start(["far"])
        await exchange(rig, (await rig.open(1))["far"])


async def test_a_relay_that_never_answers_is_given_up_and_killed(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = f"trap '' TERM; echo $$ > {pid_file}; echo 'still waiting' >&2; sleep 1000"
    told = str(await failure(tmp_path, script, timeout_s=1.0))
    assert "did not answer within 1 s" in told
    assert "still waiting" in told
    assert not is_alive(int(pid_file.read_text()))


async def test_a_missing_srun_is_told(tmp_path: Path) -> None:
    def step(node: str, argv: list[str]) -> list[str]:
        return ["/nonexistent/srun", *argv]

    async with relay_rig(tmp_path, step=step) as rig:
        with pytest.raises(RelayFailed, match=r"on far: .*/nonexistent/srun"):
            await rig.relays.start(["far"])


async def test_one_bad_node_does_not_cost_the_good_ones(tmp_path: Path) -> None:
    def step(node: str, argv: list[str]) -> list[str]:
        if node.startswith("bad"):
            return ["sh", "-c", "echo 'node is down' >&2; exit 1"]
        return ["env", f"SLURMD_NODENAME={node}", *argv]

    async with relay_rig(tmp_path, step=step) as rig:
        with pytest.raises(RelayFailed, match=r"on bad1: node is down \(and 1 more of 3 nodes\)"):
            await rig.relays.start(["bad1", "good", "bad2"])
        assert rig.relays.nodes == ["good"]
        assert list(await rig.open(1)) == ["good"]


async def test_stop_ends_what_is_still_starting(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"

    def step(node: str, argv: list[str]) -> list[str]:
        return ["sh", "-c", f"echo $$ > {pid_file}; exec sleep 1000"]

    async with relay_rig(tmp_path, step=step) as rig:
        starting = asyncio.ensure_future(rig.relays.start(["far"]))
        async with asyncio.timeout(20):
            while not (pid_file.exists() and pid_file.read_text()):
                await asyncio.sleep(0.01)
        await rig.relays.stop()
        with pytest.raises(RelayFailed, match="ending"):
            await starting
        assert not is_alive(int(pid_file.read_text()))


# -- what srun is told --------------------------------------------------------


def test_the_step_asks_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "42")
    argv = srun_step("node2", ["python3", "agent.zip", "relay", "x"])
    assert argv[:2] == ["srun", "--jobid=42"]
    assert {"--overlap", "--nodelist=node2", "--mem=0", "--gres=none"} < set(argv)
    assert argv[argv.index("--") + 1 :] == ["env", "-u", TAG, "python3", "agent.zip", "relay", "x"]
    for bad in ("-w", "node2,node3", "a b", ""):
        with pytest.raises(RelayFailed):
            srun_step(bad, [])
    monkeypatch.delenv("SLURM_JOB_ID")
    with pytest.raises(RelayFailed, match="in no Slurm job"):
        srun_step("node2", [])


def test_the_batch_steps_variables_do_not_become_options(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_GPUS_PER_NODE", "SLURM_NTASKS", "SLURM_MEM_PER_NODE", "SRUN_DEBUG"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm/slurm.conf")
    environment = step_environment()
    assert environment["SLURM_CONF"] == "/etc/slurm/slurm.conf"
    assert environment["PATH"] == os.environ["PATH"]
    left = {name for name in environment if name.startswith(("SLURM", "SRUN"))}
    assert left <= {"SLURM_CONF", "SLURM_JWT"}


async def test_the_other_nodes_of_the_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_JOB_NUM_NODES"):
        monkeypatch.delenv(name, raising=False)
    async with process_table() as table:
        assert await other_nodes(table) == []
        monkeypatch.setenv("SLURM_JOB_NODELIST", "node1")
        monkeypatch.setenv("SLURMD_NODENAME", "node1")
        assert await other_nodes(table) == []
        # Slurm's own words are tested on a real one (e2e); here, what is made of them.
        scontrol = tmp_path / "scontrol"
        scontrol.write_text(
            '#!/bin/sh\n[ "$3" = "node[1-3]" ] && printf "node1\\nnode2\\nnode3\\n"\n'
        )
        scontrol.chmod(0o700)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        monkeypatch.setenv("SLURM_JOB_NODELIST", "node[1-3]")
        assert await other_nodes(table) == ["node2", "node3"]
        monkeypatch.setenv("SLURM_JOB_NODELIST", "what[")
        with pytest.raises(RpcError, match="can't take 'what\\[' apart"):
            await other_nodes(table)
