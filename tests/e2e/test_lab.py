"""The lab is what it says it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.lab_fixtures import ssh, ssh_argv
from tests.support.lab_rig import until
from tunnelkit import lab as tk_lab
from tunnelkit.cli.commands.support.lab import app
from tunnelkit.lab import LabInfo


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
