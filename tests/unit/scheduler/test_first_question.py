"""The detection and the first question in one command: run here, with programs of schedulers."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tunnelkit.errors import SchedulerError
from tunnelkit.model import Completed
from tunnelkit.scheduler.factory import adapter
from tunnelkit.scheduler.first_question import FirstAnswer, first_question, parse_first
from tunnelkit.scheduler.inspector import JobInspector

MARK, INNER = "tk-0123", "tk-4567"
#: A job whose name claims to be a detection, and another mark.
RECORD = (
    "JobId=12 JobName=x JobState=FAILED Reason=None ExitCode=1:0 Comment=\ntk-found qsub /evil\n"
)
PBS_RECORD = "Job Id: 12.login\n    Job_Name = x\n    job_state = Q\n    queue = workq\n"
SLURM = {"sbatch": "exit 1", "squeue": "exit 1", "scancel": "exit 1", "sacct": "exit 1",
         "sinfo": "exit 0", "scontrol": f"printf '%s' '{RECORD}'"}  # fmt: skip
_VERSION = "--version) echo 'pbs_version = 23.06.06'"
PBS = {"qsub": "exit 1", "qdel": "exit 1", "qselect": "echo 12.login", "pbsnodes": "exit 1",
       "qstat": f"case $1 in {_VERSION};; *) printf '%s' '{PBS_RECORD}';; esac"}  # fmt: skip
TORQUE = {**PBS, "qstat": PBS["qstat"].replace("echo 'pbs_version =", "echo 'Version:") + " >&2"}

Ask = Callable[[JobInspector], Sequence[str]]


def about(job: str) -> Ask:
    return lambda inspector: inspector.inspect(job, INNER)


OLD_TORQUE = {**TORQUE, "qstat": TORQUE["qstat"].replace("Version:", "version:")}
ABOUT_12 = about("12")


def asked(
    base: Path, programs: dict[str, str], ask: Ask = ABOUT_12, wanted: str = "auto"
) -> FirstAnswer:
    (base / "bin").mkdir()
    for name, body in programs.items():
        path = base / "bin" / name
        path.write_text(f"#!/bin/sh\necho '{name}' >>'{base}/asked'\n{body}\n")
        path.chmod(0o755)
    for name in ("sh", "sed", "timeout", "date", "head", "tail", "awk", "sort", "df", "id", "tr",
                 "readlink", "test", "grep", "cat", "stat"):  # fmt: skip
        (base / "bin" / name).symlink_to(f"/usr/bin/{name}")
    command = first_question(wanted, MARK, lambda one: ask(one.inspector()))
    # None of this machine's own schedulers.
    argv = [*command.argv[:4], "", *command.argv[5:]]
    environ = {"PATH": f"{base}/bin", "HOME": str(base), "PBS_CONF_FILE": "/nowhere"}
    done = subprocess.run(argv, capture_output=True, env=environ, check=False, timeout=60)
    return parse_first(Completed(done.returncode, done.stdout, done.stderr), MARK)


@pytest.mark.parametrize(
    ("programs", "kind"),
    [
        (SLURM, "slurm"),
        (PBS, "pbs"),
        (TORQUE, "torque"),
        (OLD_TORQUE, "torque"),
        ({**SLURM, **PBS}, "slurm"),
        ({**SLURM, "qsub": "exit 1"}, "slurm"),
        ({**SLURM, **PBS, "sinfo": "exit 1"}, "pbs"),
        ({**PBS, "qstat": "echo GE 6.2"}, "none"),
        ({}, "none"),
    ],
)
def test_the_shell_asks_the_scheduler_that_is_found(
    tmp_path: Path, programs: dict[str, str], kind: str
) -> None:
    answer = asked(tmp_path, programs)
    assert answer.kind == answer.detected.name == kind
    scheduler = adapter("auto", answer.detected, "login")
    if scheduler is None:
        assert not answer.done.stdout.strip()
        return
    inspector = scheduler.inspector()
    assert inspector is not None
    found = inspector.parse(answer.done, "12", INNER)
    assert found.job is not None and found.job.name == "x"
    # Its texts are no part of the detection.
    assert "/evil" not in answer.detected.bin_dirs.values()


def test_at_most_six_commands_and_no_version(tmp_path: Path) -> None:
    waits = RECORD.replace("FAILED", "PENDING").replace("None", "Priority")
    programs = {**SLURM, "sprio": "exit 0", "scontrol": f"printf '%s' '{waits}'"}
    assert asked(tmp_path, programs).kind == "slurm"
    names = (tmp_path / "asked").read_text().split()
    assert "sbatch" not in names and "sprio" in names and len(names) <= 6, names


def test_a_question_that_only_one_can_be_asked(tmp_path: Path) -> None:
    answer = asked(tmp_path, PBS, about("12.login"))
    assert answer.kind == "pbs" and b"12.login" in answer.done.stdout
    (tmp_path / "slurm").mkdir()
    other = asked(tmp_path / "slurm", SLURM, about("12.login"))
    assert (other.detected.name, other.done.stdout.strip()) == ("slurm", b"")


def test_a_scheduler_that_is_set_and_the_newest_job(tmp_path: Path) -> None:
    answer = asked(tmp_path, {**SLURM, **PBS}, lambda one: one.newest(), "pbs")
    assert answer.done.stdout.strip() == b"", "the shell has found another one"
    (tmp_path / "b").mkdir()
    rows = {**SLURM, "squeue": "echo tk-job 12 RUNNING N/A 1795000000"}
    newest = asked(tmp_path / "b", rows, lambda one: one.newest())
    assert newest.done.stdout.startswith(b"tk-job 12 ")


def test_no_detection() -> None:
    with pytest.raises(SchedulerError):
        parse_first(Completed(1, f"\n{MARK} slurm\ntk-done\n".encode(), b"no"), MARK)
