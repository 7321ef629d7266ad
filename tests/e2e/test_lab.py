"""The lab is what it says it is, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.lab_fixtures import running_lab, ssh, ssh_argv, why_no_lab
from tunnelkit import lab as tk_lab
from tunnelkit.cli.lab import app
from tunnelkit.errors import ConfigError, MissingProgram, SchedulerError, UsageError
from tunnelkit.lab import LabInfo, programs, slurm
from tunnelkit.lab.layout import Layout
from tunnelkit.lab.processes import Process, identify, is_alive, lab_processes
from tunnelkit.lab.proxy import Proxy
from tunnelkit.lab.state import load

needs_lab = pytest.mark.skipif(bool(why_no_lab()), reason=str(why_no_lab()))


def until(condition: Callable[[], object], deadline_s: float = 20.0) -> None:
    ends = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < ends, "never came true"
        time.sleep(0.02)


def processes_of(info: LabInfo) -> set[Process]:
    state = load(Layout(info.dir))
    assert state
    return lab_processes(str(info.dir), state.processes)


# --- what the lab is -------------------------------------------------------------------------


def test_all_daemons_live_and_all_nodes_are_idle(slurm_lab: LabInfo) -> None:
    status = tk_lab.status(slurm_lab.dir)
    assert status.healthy
    assert status.nodes == {"node1": "idle", "node2": "idle"}
    names = {daemon.name for daemon in status.daemons}
    assert names >= {"sshd-login", "sshd-node1", "sshd-node2", "munged", "slurmctld", "proxy"}


def test_up_again_leaves_a_healthy_lab_alone(lab: LabInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TK_CONFIG_DIR", str(lab.profile.parents[1]))
    before = [daemon.pid for daemon in tk_lab.status(lab.dir).daemons]
    assert tk_lab.up(lab.dir) == lab
    assert [daemon.pid for daemon in tk_lab.status(lab.dir).daemons] == before


def test_a_job_gets_its_gpus_and_its_nodes_environment(slurm_lab: LabInfo) -> None:
    script = "echo $CUDA_VISIBLE_DEVICES $SLURMD_NODENAME $TMPDIR $TK_LAB_HOST $HOME"
    submit = f"sbatch --wait --parsable -o gpus.log -w node2 --gpus 2 -c 4 --wrap '{script}'"
    out = ssh(slurm_lab, "login", f"{submit} >/dev/null && cat gpus.log")
    tmp = slurm_lab.dir / "t" / "node2"
    assert out.split() == ["0,1", "node2", str(tmp), "node2", str(slurm_lab.home)]


def test_srun_enters_a_job_from_login(slurm_lab: LabInfo) -> None:
    job = ssh(slurm_lab, "login", "sbatch --parsable -o /dev/null -w node1 --wrap 'sleep 300'")
    try:
        running = f"squeue -h -j {job.strip()} -o %T"
        until(lambda: ssh(slurm_lab, "login", running).strip() == "RUNNING")
        enter = f"srun --jobid={job.strip()} --overlap -N1 -n1 printenv SLURMD_NODENAME"
        assert ssh(slurm_lab, "login", enter).strip() == "node1"
    finally:
        ssh(slurm_lab, "login", f"scancel {job}")


def test_a_job_that_does_not_fit_waits_with_a_reason(slurm_lab: LabInfo) -> None:
    wrap = "--parsable -o /dev/null -w node1 --gpus 2 --wrap 'sleep 300'"
    jobs = ssh(slurm_lab, "login", f"sbatch {wrap}; sbatch {wrap}").split()
    try:
        ask = f"squeue -h -j {jobs[1]} -o '%T %r'"
        until(lambda: ssh(slurm_lab, "login", ask).strip() == "PENDING Resources")
    finally:
        ssh(slurm_lab, "login", f"scancel {' '.join(jobs)}")


@pytest.mark.parametrize("host", ["login", "node1", "node2"])
def test_ssh_reaches_every_host_and_lands_in_the_labs_home(lab: LabInfo, host: str) -> None:
    assert ssh(lab, host, "echo $TK_LAB_HOST; pwd").split() == [host, str(lab.home)]


def test_on_login_plain_ssh_reaches_the_nodes(lab: LabInfo) -> None:
    assert ssh(lab, "login", "ssh node2 printenv TK_LAB_HOST").strip() == "node2"


def test_python_there_is_the_one_that_runs_us(lab: LabInfo) -> None:
    there = ssh(lab, "node1", "command -v python3").strip()
    assert Path(there).parent == Path(sys.executable).parent


def test_a_terminal_is_had_or_its_lack_is_said(lab: LabInfo) -> None:
    argv = [*ssh_argv(lab, "node1", "-tt"), "tty; echo $PATH"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert ("/dev/pts/" in done.stdout) == (not any("terminals" in note for note in lab.notes))


def test_sftp_starts_in_the_labs_home(lab: LabInfo, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("hello")
    scp = [*lab.enter, "scp", "-q", "-F", str(lab.ssh_config), str(tmp_path / "x"), "node1:sent"]
    subprocess.run(scp, check=True, timeout=60)
    assert (lab.home / "sent").read_text() == "hello"


def test_a_wrong_host_key_is_refused(lab: LabInfo, tmp_path: Path) -> None:
    known = (lab.dir / "ssh" / "known_hosts").read_text().splitlines()
    keys = [line.split(" ", 1) for line in known]
    swapped = f"{keys[0][0]} {keys[1][1]}\n"
    (tmp_path / "known").write_text(swapped)
    option = f"UserKnownHostsFile={tmp_path / 'known'}"
    argv = [*ssh_argv(lab, "login", "-o", option), "true"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 255
    assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in done.stderr


def test_everything_private_is_private(lab: LabInfo) -> None:
    assert lab.dir.stat().st_mode & 0o777 == 0o700
    for name in ("ssh/laptop", "ssh/cluster", "ssh/host_login", "lab.json"):
        assert (lab.dir / name).stat().st_mode & 0o077 == 0


# --- what it leaves ------------------------------------------------------------------------


@needs_lab
def test_down_leaves_nothing_not_even_what_a_job_hid() -> None:
    with running_lab() as info:
        hide = "(env -i setsid -f sleep 300; setsid -f sleep 300) >/dev/null 2>&1"
        ssh(info, "login", hide)
        if info.scheduler == "slurm":
            wrap = f"{hide}; sleep 300"
            job = ssh(info, "login", f"sbatch --parsable -o /dev/null --wrap '{wrap}'").strip()
            until(lambda: "R" in ssh(info, "login", f"squeue -h -j {job} -o %t"))
        held = subprocess.Popen([*ssh_argv(info, "node1"), "sleep 300"], stdin=subprocess.DEVNULL)
        sleeps = 5 if info.scheduler == "slurm" else 3
        until(lambda: len([p for p in processes_of(info) if _name(p) == "sleep"]) >= sleeps)
        before = processes_of(info)
        tk_lab.down(info.dir)
        assert held.wait(timeout=20) == 255
        assert not [process for process in before if is_alive(process)]
        assert not info.dir.exists()
        assert not info.profile.exists()
        tk_lab.down(info.dir)
        with pytest.raises(UsageError, match="no lab"):
            tk_lab.info(info.dir)


@needs_lab
def test_down_finds_everything_after_the_supervisor_was_killed() -> None:
    with running_lab() as info:
        ssh(info, "node1", "setsid -f sleep 300 >/dev/null 2>&1")
        before = processes_of(info)
        supervisor = next(d for d in tk_lab.status(info.dir).daemons if d.name == "supervisor")
        os.kill(supervisor.pid, signal.SIGKILL)
        tk_lab.down(info.dir)
        assert not [process for process in before if is_alive(process)]
        assert not info.dir.exists()


@needs_lab
def test_a_lab_with_a_dead_daemon_is_not_healthy_and_up_makes_a_new_one() -> None:
    with running_lab(scheduler="none") as info:
        tk_lab.stop_daemon("sshd-node1", info.dir)
        assert not tk_lab.status(info.dir).healthy
        tk_lab.start_daemon("sshd-node1", info.dir)
        assert tk_lab.status(info.dir).healthy
        assert ssh(info, "node1", "echo back").strip() == "back"
        tk_lab.stop_daemon("sshd-node2", info.dir)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TK_CONFIG_DIR", str(info.profile.parents[1]))
            again = tk_lab.up(info.dir, scheduler="none")
        assert tk_lab.status(again.dir).healthy


@needs_lab
def test_a_failed_up_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profile = tmp_path / "clusters" / "lab.toml"
    profile.parent.mkdir()
    profile.write_text("# mine\n")
    monkeypatch.setenv("TK_CONFIG_DIR", str(tmp_path))
    lab_dir = Path(f"/tmp/tkl-{os.getpid()}")
    with pytest.raises(ConfigError, match="not written by"):
        tk_lab.up(lab_dir, scheduler="none")
    assert not lab_dir.exists()
    assert not lab_processes(str(lab_dir), ())
    assert profile.read_text() == "# mine\n"


@needs_lab
def test_a_slurm_that_fails_to_start_is_explained_by_its_own_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if programs.missing(programs.SLURM_PROGRAMS):
        pytest.skip("Slurm is not installed")
    monkeypatch.setattr(slurm, "_gres_conf", lambda: "Nonsense=1\n")
    with pytest.raises(SchedulerError) as caught, running_lab():
        pass
    assert "Nonsense" in caught.value.one_line()
    assert "slurmd-node" in caught.value.one_line()


def test_down_does_not_touch_a_directory_that_is_no_labs(tmp_path: Path) -> None:
    (tmp_path / "thesis").write_text("only copy")
    short = Path(f"/tmp/tks-{os.getpid()}")
    short.symlink_to(tmp_path)
    try:
        with pytest.raises(UsageError, match="not a lab"):
            tk_lab.down(short)
        with pytest.raises(UsageError):
            tk_lab.up(short)
    finally:
        short.unlink()
    assert (tmp_path / "thesis").read_text() == "only copy"


def test_a_reused_pid_is_a_stranger() -> None:
    me = identify(os.getpid())
    assert me and is_alive(me)
    assert not is_alive(Process(me.pid, me.start - 1))


def _name(process: Process) -> str:
    try:
        return Path(f"/proc/{process.pid}/comm").read_text().strip()
    except OSError:
        return ""


# --- what it can't be ------------------------------------------------------------------------


@pytest.mark.parametrize("bad", ["/tmp/" + "x" * 90, "/tmp/a b", "/tmp/a%b", "/tmp/ä"])
def test_unusable_directories_are_refused(bad: str) -> None:
    with pytest.raises(UsageError, match="directory"):
        tk_lab.up(Path(bad))


def test_netns_needs_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(UsageError, match="needs root"):
        tk_lab.up(Path(f"/tmp/tkn-{os.getpid()}"), flavour="netns", scheduler="none")


def test_a_missing_program_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs.shutil, "which", lambda *_, **__: None)
    with pytest.raises(MissingProgram) as caught:
        tk_lab.up(Path(f"/tmp/tkm-{os.getpid()}"))
    assert "apt-get install openssh-server" in caught.value.one_line()


@needs_lab
def test_without_slurm_the_lab_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    real = programs.shutil.which
    monkeypatch.setattr(
        programs.shutil, "which", lambda n, **k: None if n == "slurmctld" else real(n, **k)
    )
    with running_lab() as info:
        assert info.scheduler == "none"
        assert any("apt-get install slurmctld" in note for note in info.notes)
        assert 'scheduler = "none"' in info.profile.read_text()
        with pytest.raises(MissingProgram):
            tk_lab.up(info.dir, scheduler="slurm")


# --- faults ----------------------------------------------------------------------------------


def test_a_cut_holds_bytes_back_and_heal_delivers_them(healed: LabInfo) -> None:
    with subprocess.Popen(
        [*ssh_argv(healed, "node1"), "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as cat:
        assert cat.stdin and cat.stdout
        try:
            _say(cat, b"one\n")
            assert cat.stdout.readline() == b"one\n"
            tk_lab.cut(healed.dir)
            _say(cat, b"two\n")
            argv = [*ssh_argv(healed, "login", "-o", "ConnectTimeout=1"), "true"]
            new = subprocess.run(argv, capture_output=True, timeout=30, check=False)
            assert new.returncode == 255
            os.set_blocking(cat.stdout.fileno(), False)
            assert cat.stdout.read() is None
            os.set_blocking(cat.stdout.fileno(), True)
            tk_lab.heal(healed.dir)
            assert cat.stdout.readline() == b"two\n"
            cat.stdin.close()
            assert cat.wait(timeout=20) == 0
        finally:
            cat.kill()


def _say(process: subprocess.Popen[bytes], data: bytes) -> None:
    assert process.stdin
    process.stdin.write(data)
    process.stdin.flush()


def test_a_reset_ends_connections_and_refuses_new_ones(healed: LabInfo) -> None:
    with subprocess.Popen(
        [*ssh_argv(healed, "node1"), "echo in; cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as cat:
        try:
            assert cat.stdout and cat.stdout.readline() == b"in\n"
            tk_lab.reset(healed.dir)
            assert cat.wait(timeout=20) == 255
        finally:
            cat.kill()
    done = subprocess.run(
        [*ssh_argv(healed, "login"), "true"], capture_output=True, timeout=30, check=False
    )
    assert b"refused" in done.stderr
    tk_lab.heal(healed.dir)
    assert ssh(healed, "node1", "echo back").strip() == "back"


def test_rtt_is_felt_by_every_round_trip(healed: LabInfo) -> None:
    with subprocess.Popen(
        [*ssh_argv(healed, "login"), "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as cat:
        assert cat.stdin and cat.stdout
        try:
            for rtt_ms in (0, 100):
                tk_lab.set_rtt(rtt_ms, healed.dir)
                _say(cat, b"warm\n")
                cat.stdout.readline()
                started = time.monotonic()
                _say(cat, b"ping\n")
                cat.stdout.readline()
                spent_ms = (time.monotonic() - started) * 1000
                assert spent_ms >= rtt_ms
                assert spent_ms < rtt_ms + 80
            cat.stdin.close()
            assert cat.wait(timeout=20) == 0
        finally:
            cat.kill()
    assert tk_lab.status(healed.dir).rtt_ms == 100


def test_a_loopback_lab_has_no_link_to_take_down(lab: LabInfo) -> None:
    with pytest.raises(UsageError, match="no link"):
        tk_lab.link_down(lab.dir)


# --- the proxy alone ------------------------------------------------------------------------


async def _proxied(rtt_s: float) -> tuple[Proxy, asyncio.Server, tuple[str, int]]:
    """A proxy in front of an echo server; where to dial."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.close()

    upstream = await asyncio.start_server(echo, "127.0.0.1", 0)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        listen = probe.getsockname()
    proxy = Proxy(listen, upstream.sockets[0].getsockname(), rtt_s)
    await proxy.open()
    return proxy, upstream, listen


@pytest.mark.parametrize("rtt_s", [0.0, 0.02])
async def test_bytes_arrive_whole_and_in_order_with_eof(rtt_s: float) -> None:
    proxy, upstream, listen = await _proxied(rtt_s)
    reader, writer = await asyncio.open_connection(*listen)
    sent = os.urandom(8 << 20)
    reading = asyncio.ensure_future(reader.read(-1))

    async def write() -> None:
        for start in range(0, len(sent), 100_000):
            writer.write(sent[start : start + 100_000])
            await writer.drain()
            if start == 4_000_000:
                proxy.set_cut(True)
                proxy.set_cut(False)
                proxy.set_rtt(0.005)
        writer.write_eof()

    async with asyncio.timeout(30):
        await write()
        assert await reading == sent
        writer.close()
        while proxy.status()["connections"]:
            await asyncio.sleep(0.01)
    proxy.reset()
    upstream.close()


async def test_distance_costs_latency_and_not_throughput() -> None:
    proxy, upstream, listen = await _proxied(0.1)
    reader, writer = await asyncio.open_connection(*listen)
    size = 32 << 20
    async with asyncio.timeout(30):
        writer.write(b"x")
        await reader.readexactly(1)
        started = time.monotonic()
        writer.write(bytes(size))
        await reader.readexactly(size)
        spent_s = time.monotonic() - started
    # 32 MiB with one window of 64 KiB a round trip would take 51 s.
    assert 0.1 <= spent_s < 5
    writer.close()
    proxy.reset()
    upstream.close()


# --- the command line -------------------------------------------------------------------------


def test_cli_env_and_status(lab: LabInfo) -> None:
    run = CliRunner().invoke
    env = run(app, ["env", "--dir", str(lab.dir)])
    assert f"export TK_LAB_SSH_CONFIG={lab.ssh_config}" in env.output.splitlines()
    assert "export TK_PROFILE=lab" in env.output.splitlines()
    status = run(app, ["status", "--json", "--dir", str(lab.dir)])
    assert status.exit_code == 0
    assert json.loads(status.output)["healthy"] is True


def test_cli_down_without_a_lab_is_fine() -> None:
    done = CliRunner().invoke(app, ["down", "--dir", f"/tmp/tkd-{os.getpid()}"])
    assert done.exit_code == 0


# --- network namespaces -----------------------------------------------------------------------


@pytest.mark.root
def test_netns_laptop_reaches_login_only(netns_lab: LabInfo) -> None:
    assert ssh(netns_lab, "node1", "echo $TK_LAB_HOST; hostname").split() == ["node1", "node1"]
    for node in ("10.213.2.11", "10.213.2.12", "10.213.2.1"):
        dial = f"import socket; socket.create_connection(('{node}', 22), 3)"
        argv = [*netns_lab.enter, "python3", "-c", dial]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode != 0, f"the laptop reaches {node}"
        assert "unreachable" in done.stderr


@pytest.mark.root
def test_netns_runs_jobs_across_nodes_that_know_each_other(netns_lab: LabInfo) -> None:
    if netns_lab.scheduler != "slurm":
        pytest.skip("Slurm is not installed")
    out = ssh(netns_lab, "login", "srun -N2 -n2 sh -c 'hostname; getent hosts node2'")
    assert {"node1", "node2", "10.213.2.12"} <= set(out.split())


@pytest.mark.root
def test_netns_link_down_is_a_network_fault_that_connections_survive(netns_lab: LabInfo) -> None:
    with subprocess.Popen(
        [*ssh_argv(netns_lab, "node1"), "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as cat:
        assert cat.stdin and cat.stdout
        try:
            _say(cat, b"one\n")
            assert cat.stdout.readline() == b"one\n"
            tk_lab.link_down(netns_lab.dir)
            argv = [*ssh_argv(netns_lab, "login"), "true"]
            done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
            assert "unreachable" in done.stderr
            _say(cat, b"two\n")
            tk_lab.link_up(netns_lab.dir)
            assert cat.stdout.readline() == b"two\n"
            cat.stdin.close()
            assert cat.wait(timeout=20) == 0
        finally:
            cat.kill()
            tk_lab.link_up(netns_lab.dir)


@pytest.mark.root
def test_netns_adds_nothing_here_and_leaves_no_namespace() -> None:
    if reason := why_no_lab(netns=True):
        pytest.skip(reason)

    def here() -> str:
        argv = ["sh", "-c", "ip -br link; ip route; ip netns"]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout

    before = here()
    with running_lab(flavour="netns", scheduler="none") as info:
        during = {line for line in here().splitlines() if not line.startswith("tk")}
        assert during <= set(before.splitlines())
        tk_lab.down(info.dir)
        assert here() == before
