"""Which scheduler a login host has: parsed, and asked of a real shell."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tunnelkit.errors import SchedulerError
from tunnelkit.model import Completed
from tunnelkit.scheduler.detect import DETECT, USUAL_DIRS, Detected, detect, parse_detect


def answer(path: Path, beside: tuple[Path, ...] = (), **environ: str) -> Completed:
    """As a login host with only `path` would answer, and the usual places `beside`: never this
    machine's own, which may have a real scheduler."""
    for tool in ("sh", "sed", "tail"):
        (path / tool).symlink_to(f"/usr/bin/{tool}" if Path(f"/usr/bin/{tool}").exists()
                                 else f"/bin/{tool}")  # fmt: skip
    argv = detect(tuple(map(str, beside))).argv
    env = {"PATH": str(path), "PBS_CONF_FILE": "/nowhere", **environ}
    done = subprocess.run(argv, env=env, capture_output=True, check=False)
    return Completed(done.returncode, done.stdout, done.stderr)


def program(path: Path, name: str, script: str) -> None:
    (path / name).write_text(f"#!/bin/sh\n{script}\n")
    (path / name).chmod(0o755)


def test_slurm_wins_over_its_qsub_wrapper(tmp_path: Path) -> None:
    program(tmp_path, "sbatch", "echo slurm-wlm 22.05.8")
    program(tmp_path, "qsub", "exit 1")
    assert parse_detect(answer(tmp_path)) == Detected("slurm", "22.05.8", str(tmp_path))


@pytest.mark.parametrize(("answers", "name"), [("exit 0", "slurm"), ("exit 1", "pbs")])
def test_of_a_slurm_and_a_pbs_the_one_that_answers(tmp_path: Path, answers: str, name: str) -> None:
    program(tmp_path, "sbatch", "echo slurm-wlm 22.05.8")
    program(tmp_path, "sinfo", answers)
    program(tmp_path, "timeout", 'shift; "$@"')
    program(tmp_path, "qsub", "exit 1")
    program(tmp_path, "qstat", "echo pbs_version = 23.06.06")
    assert parse_detect(answer(tmp_path)).name == name


def test_openpbs(tmp_path: Path) -> None:
    program(tmp_path, "qsub", "exit 1")
    program(tmp_path, "qstat", "echo pbs_version = 23.06.06")
    found = parse_detect(answer(tmp_path))
    assert found == Detected("pbs", "23.06.06", str(tmp_path))
    assert found.bin_dirs == {"qsub": str(tmp_path), "qstat": str(tmp_path)}


def test_openpbs_where_its_own_configuration_says(tmp_path: Path) -> None:
    there = tmp_path / "pbs" / "bin"
    there.mkdir(parents=True)
    program(there, "qsub", "exit 1")
    program(there, "qstat", "echo pbs_version = 23.06.06")
    conf = tmp_path / "pbs.conf"
    conf.write_text(f"PBS_HOME=/var/spool/pbs\nPBS_EXEC={there.parent}\n")
    found = parse_detect(answer(tmp_path, PBS_CONF_FILE=str(conf)))
    assert (found.name, found.bin_dir) == ("pbs", str(there))


def test_openpbs_tells_whether_it_keeps_history(tmp_path: Path) -> None:
    program(tmp_path, "qsub", "exit 1")
    script = (
        'case $1 in -B) echo "    job_history_enable = %s";; *) echo pbs_version = 23.06.06;; esac'
    )
    for told, history in (("True", True), ("False", False)):
        program(tmp_path, "qstat", script % told)
        for tool in ("sh", "sed", "tail"):
            (tmp_path / tool).unlink(missing_ok=True)
        assert parse_detect(answer(tmp_path)).history is history


def test_torque_speaks_on_stderr(tmp_path: Path) -> None:
    program(tmp_path, "qsub", "exit 1")
    program(tmp_path, "qstat", "echo Version: 6.1.2 >&2; echo Commit: abc >&2")
    assert parse_detect(answer(tmp_path)) == Detected("torque", "6.1.2", str(tmp_path))


def test_an_older_torque_writes_its_version_in_lower_case(tmp_path: Path) -> None:
    program(tmp_path, "qsub", "exit 1")
    program(tmp_path, "qstat", "echo version: 2.5.12 >&2")
    assert parse_detect(answer(tmp_path)) == Detected("torque", "2.5.12", str(tmp_path))


def test_a_usual_place_is_looked_at_after_the_path(tmp_path: Path) -> None:
    on_path, opt = tmp_path / "path", tmp_path / "opt"
    on_path.mkdir()
    opt.mkdir()
    program(opt, "qsub", "exit 1")
    program(opt, "qstat", "echo pbs_version = 23.06.06")
    assert parse_detect(answer(on_path, (opt,))) == Detected("pbs", "23.06.06", str(opt))
    program(on_path, "qstat", "echo Version: 6.1.2 >&2")
    for tool in ("sh", "sed", "tail"):
        (on_path / tool).unlink()
    assert parse_detect(answer(on_path, (opt,))).name == "torque"


def test_the_usual_places_are_what_is_asked_by_default() -> None:
    assert detect(USUAL_DIRS) == DETECT
    assert {"/opt/pbs/bin", "/opt/slurm/bin", "/opt/torque/bin"} <= set(USUAL_DIRS)
    assert DETECT.argv[-1].split(":") == list(USUAL_DIRS)


def test_grid_engine_is_none_of_ours(tmp_path: Path) -> None:
    program(tmp_path, "qsub", "exit 1")
    program(tmp_path, "qstat", "echo GE 8.1.9; exit 1")
    assert parse_detect(answer(tmp_path)).name == "none"


def test_nothing_there() -> None:
    assert parse_detect(Completed(0, b"Welcome!\ntk-done\n", b"")) == Detected("none")


def test_an_alias_has_no_directory() -> None:
    done = Completed(0, b"tk-found sbatch alias sbatch='x'\ntk-sbatch slurm 23.11\ntk-done\n", b"")
    assert parse_detect(done) == Detected("slurm", "23.11", "")


@pytest.mark.parametrize("done", [Completed(255, b"", b"lost"), Completed(0, b"hello", b"")])
def test_no_answer_is_not_taken_for_no_scheduler(done: Completed) -> None:
    with pytest.raises(SchedulerError) as caught:
        parse_detect(done)
    assert caught.value.transient
