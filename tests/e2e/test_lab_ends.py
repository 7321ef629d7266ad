"""The lab leaves nothing behind, and says what it can't be."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.lab_fixtures import running_lab, ssh, ssh_argv
from tests.support.lab_rig import name_of, needs_lab, processes_of, until
from tests.support.places import short_name
from tunnelkit import lab as tk_lab
from tunnelkit.errors import ConfigError, MissingProgram, SchedulerError, UsageError
from tunnelkit.lab import programs, slurm
from tunnelkit.lab.processes import ProcessId, identify, is_alive, lab_processes


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
        until(lambda: len([p for p in processes_of(info) if name_of(p) == "sleep"]) >= sleeps)
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
    lab_dir = Path(f"/tmp/{short_name('l')}-{os.getpid()}")
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
    assert not is_alive(ProcessId(me.pid, me.start - 1))


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
