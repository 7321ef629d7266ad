"""What sbatch is given, what it is never given, and what its refusals become."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.errors import SchedulerError, UsageError
from tunnelkit.model import Completed, ResourceRequest
from tunnelkit.scheduler.base import Command
from tunnelkit.scheduler.slurm.adapter import Slurm
from tunnelkit.scheduler.slurm.submit import check_extra

slurm = Slurm()


def submit(**request: object) -> Command:
    return slurm.submit(
        ResourceRequest(**request),  # type: ignore[arg-type]
        job_name="tk-x",
        body="echo hi\n",
        log_dir="/home/me/log",
    )


def failed(stderr: str, code: int = 1) -> Completed:
    return Completed(code, b"", stderr.encode())


def test_all_resources_are_argv_words() -> None:
    command = submit(
        node="node4", gpus=1, cpus=2, mem="16G", time_limit_s=7200, partition="gpu",
        account="lab-42", qos="normal", constraint="a100&nvlink", extra=("--exclusive", "-v"),
    )  # fmt: skip
    assert command.argv == (
        "env", "-u", "SBATCH_ARRAY_INX", "-u", "SBATCH_WAIT",
        "sbatch", "--parsable", "--job-name=tk-x", "--nodes=1", "--ntasks=1",
        "--ntasks-per-node=1", "--nodelist=node4", "--gpus=1", "--cpus-per-task=2",
        "--time=02:00:00", "--mem=16G", "--partition=gpu", "--account=lab-42", "--qos=normal",
        "--constraint=a100&nvlink", "--no-requeue", "--signal=B:USR1@120", "--open-mode=append",
        "--output=/home/me/log/%j.log", "--exclusive", "-v",
    )  # fmt: skip
    assert command.stdin == b"#!/bin/sh\nexport TK_WARNING_S=120\necho hi\n"


def test_exclusive_reservation_and_requeue() -> None:
    argv = submit(exclusive=True, reservation="course", requeue=True).argv
    assert {"--exclusive", "--reservation=course", "--requeue"} <= set(argv)
    assert "--no-requeue" not in argv


def test_an_array_is_refused_with_what_to_do_instead() -> None:
    with pytest.raises(UsageError) as caught:
        submit(extra=("--array=1-4",))
    assert "one allocation is one job" in caught.value.one_line()
    assert "SLURM_ARRAY_TASK_ID" in caught.value.one_line()


def test_several_nodes_have_one_task_each_and_gpus_per_node() -> None:
    argv = submit(nodes=3, gpus=2).argv
    assert {"--nodes=3", "--ntasks=3", "--ntasks-per-node=1", "--gpus-per-node=2"} <= set(argv)


def test_the_warning_signal_comes_after_the_start_of_a_short_job() -> None:
    command = submit(time_limit_s=60)
    assert "--signal=B:USR1@30" in command.argv
    assert b"export TK_WARNING_S=30\n" in command.stdin


@pytest.mark.parametrize(
    ("log_dir", "pattern"),
    [("~/tk/log", "./tk/log/%j.log"), ("/a/100%/", "/a/100%%/%j.log"), ("~/", "./%j.log")],
)
def test_log_directory(log_dir: str, pattern: str) -> None:
    command = slurm.submit(ResourceRequest(), job_name="x", body="", log_dir=log_dir)
    assert f"--output={pattern}" in command.argv


@pytest.mark.parametrize(
    "request_",
    [
        {"partition": "gpu\n#SBATCH --uid=0"},
        {"account": "a b"},
        {"qos": ""},
        {"constraint": "a;b"},
        {"mem": "lots"},
        {"node": "-oX"},
        {"node": "n1\nn2"},
        {"nodes": 0},
        {"gpus": -1},
        {"cpus": 0},
        {"time_limit_s": 0},
        {"reservation": "a b"},
    ],
)
def test_values_that_cannot_be(request_: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        submit(**request_)


@pytest.mark.parametrize("name", ["a\nb", "", "x" * 65, "a|b", "a b"])
def test_job_names_are_strict(name: str) -> None:
    with pytest.raises(UsageError):
        slurm.submit(ResourceRequest(), job_name=name, body="", log_dir="/x")


@pytest.mark.parametrize(
    "word",
    [
        "-J", "-Jfoo", "--job-name=x", "--job-na=x", "--job", "-o", "-ofile", "--output=x",
        "--out=x", "-a1-5", "--array=1-5", "--arr=1", "--wrap=ls", "-N2", "--nodes=2",
        "-wnode1", "--nodelist=n1", "-t5", "--time=5", "-HJname", "-QW", "--wait",
        "--test-only", "-D/tmp", "--chdir=/tmp", "-Mother", "--signal=USR1@1", "--requeue",
        "script.sh", "", "-", "--", "--mem=1\n2", "--exclusive\0", ":",
    ],
)  # fmt: skip
def test_extra_that_would_break_the_holder(word: str) -> None:
    with pytest.raises(UsageError):
        check_extra(word)


@pytest.mark.parametrize(
    "word",
    ["--exclusive", "-Ca100", "--constraint=a100", "--gres=gpu:a100:1", "--mem-per-cpu=4G",
     "--reservation=course", "--time-min=10", "--no-requeue", "-x node3", "--exclude=n[1-3]",
     "-H", "--comment=a b", "--cluster-constraint=x", "--nice=100", "--export=NONE"],
)  # fmt: skip
def test_extra_that_is_passed_as_it_is(word: str) -> None:
    assert check_extra(word) == word


@given(st.text(max_size=30))
def test_no_extra_word_becomes_a_script_or_a_second_line(word: str) -> None:
    try:
        check_extra(word)
    except UsageError:
        return
    assert word.startswith("-") and word not in ("-", "--") and "\n" not in word


@pytest.mark.parametrize(
    ("stdout", "job_id"),
    [("42\n", "42"), ("42;big\n", "42"), ("Welcome to the site!\n\n42\n", "42")],
)
def test_job_id(stdout: str, job_id: str) -> None:
    assert slurm.parse_submit(Completed(0, stdout.encode(), b"")) == job_id


def test_success_without_an_id_is_looked_into_before_another_submit() -> None:
    with pytest.raises(SchedulerError) as caught:
        slurm.parse_submit(Completed(0, b"queued\n", b""))
    assert caught.value.transient


#: Printed by a real Slurm 22.05, but the last three (read in its source).
REFUSALS = [
    ("sbatch: error: Batch job submission failed: Invalid node name specified\n", "sinfo -N"),
    ("sbatch: error: Batch job submission failed: Requested node configuration is not available\n",
     "no node has"),
    ("sbatch: error: invalid partition specified: nosuch\n"
     "sbatch: error: Batch job submission failed: Invalid partition name specified\n", "sinfo -s"),
    ("sbatch: error: Invalid --time specification\n", "less time"),
    ("sbatch: error: Memory specification can not be satisfied\n"
     "sbatch: error: Batch job submission failed: Requested node configuration is not available\n",
     "less mem"),
    ("sbatch: error: Batch job submission failed: Invalid feature specification\n", "features"),
    ("sbatch: error: Invalid generic resource (gres) specification\n", "GPUs"),
    ("sbatch: error: Batch job submission failed: Invalid account or account/partition combination "
     "specified\n", "accounts"),
    ("sbatch: error: Batch job submission failed: Invalid qos specification\n", "qos"),
    ("sbatch: error: Batch job submission failed: Requested reservation is invalid\n",
     "scontrol show reservation"),
    ("sbatch: error: Batch job submission failed: Requested time limit is invalid (missing or "
     "exceeds some limit)\n", "less time"),
]  # fmt: skip


@pytest.mark.parametrize(("stderr", "hint"), REFUSALS)
def test_refusals_say_what_to_do(stderr: str, hint: str) -> None:
    with pytest.raises(SchedulerError) as caught:
        slurm.parse_submit(failed(stderr))
    error = caught.value
    assert not error.transient
    assert error.hint and hint in error.hint
    assert error.cause and "sbatch: error" not in error.cause
    assert "\n" not in error.one_line()


@pytest.mark.parametrize(
    "stderr",
    [
        "sbatch: error: Batch job submission failed: Unable to contact slurm controller "
        "(connect failure)",
        "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
        "sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received",
        "squeue: fatal: Could not establish a configuration source",
    ],
)
def test_an_unreachable_controller_is_transient(stderr: str) -> None:
    with pytest.raises(SchedulerError) as caught:
        slurm.parse_submit(failed(stderr))
    assert caught.value.transient


FAILED = "sbatch: error: Batch job submission failed: "


@pytest.mark.parametrize(
    ("reason", "verdict"),
    [
        ("sbatch: error: Name an account, then try again\n", f"{FAILED}Unspecified error"),
        ("sbatch: error: gpu2 is temporarily closed\n", f"{FAILED}Access/permission denied"),
        ("sbatch: error: time out of range: timed out jobs fill it\n",
         "sbatch: error: cli_filter plugin terminated with error"),
        ("".join(f"sbatch: error: rule {number}\n" for number in range(6)) +
         "sbatch: error: -------\n", f"{FAILED}Unspecified error"),
    ],
)  # fmt: skip
def test_a_rule_of_the_site_refuses_once_in_its_own_words(reason: str, verdict: str) -> None:
    with pytest.raises(SchedulerError) as caught:
        slurm.parse_submit(failed(reason + verdict + "\n"))
    error = caught.value
    assert not error.transient
    assert error.cause and reason.split("\n")[0].removeprefix("sbatch: error: ") in error.cause
    assert "---" not in error.cause
    assert "does not answer" not in (error.hint or "")


def test_an_unspecified_error_alone_may_be_a_lost_connection() -> None:
    with pytest.raises(SchedulerError) as caught:
        slurm.parse_submit(failed(f"{FAILED}Unspecified error\n"))
    assert caught.value.transient


_NOISE = ".bashrc: line 12: module: command not found\n"


def test_what_the_login_shell_prints_is_not_slurms() -> None:
    with pytest.raises(SchedulerError) as caught:
        slurm.parse_submit(failed(f"{_NOISE}{FAILED}Invalid qos specification\n"))
    assert "sacctmgr" in (caught.value.hint or "") and not caught.value.transient
    away = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"
    with pytest.raises(SchedulerError) as caught:
        slurm.parse_query(failed(_NOISE + away), ["42"])
    assert caught.value.transient
    note = "NOTE: /scratch is for temporary files; try again later\nsqueue: error: Invalid user\n"
    with pytest.raises(SchedulerError) as caught:
        slurm.parse_query(failed(note), ["42"])
    assert not caught.value.transient


def test_no_sbatch_in_a_csh() -> None:
    with pytest.raises(SchedulerError) as caught:
        slurm.parse_submit(failed(f"{_NOISE}sbatch: Command not found.\n"))
    assert caught.value.hint and 'scheduler = "none"' in caught.value.hint


def test_no_sbatch_at_all() -> None:
    with pytest.raises(SchedulerError) as caught:
        slurm.parse_submit(failed("sh: 1: sbatch: not found\n", 127))
    assert caught.value.hint and 'scheduler = "none"' in caught.value.hint
