"""What qsub is given, what it is never given, and what its refusals become."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.scheduler.pbs_transcripts import answer
from tunnelkit.errors import SchedulerError, UsageError
from tunnelkit.model import Completed, ResourceRequest
from tunnelkit.scheduler.base import Command
from tunnelkit.scheduler.pbs.adapter import PBS, Qstat
from tunnelkit.scheduler.pbs.submit import check_extra
from tunnelkit.scheduler.pbs.torque import Torque


def submit(scheduler: Qstat, **request: object) -> Command:
    return scheduler.submit(
        ResourceRequest(**request),  # type: ignore[arg-type]
        job_name="tk-x",
        body="echo hi\n",
        log_dir="/home/me/log",
    )


HOLDER = (
    "qsub",
    "-N",
    "tk-x",
    "-S",
    "/bin/sh",
    "-r",
    "n",
    "-j",
    "oe",
    "-o",
    "/home/me/log/tk-x.log",
)


def test_pbs_asks_by_select() -> None:
    command = submit(
        PBS(), node="node4", gpus=1, cpus=2, mem="16G", time_limit_s=7200, partition="gpu",
        account="lab-42", constraint="gpu_model=a100", extra=("-l place=excl", "-Pproj"),
    )  # fmt: skip
    assert command.argv == (
        *HOLDER, "-f", "-l", "select=1:ncpus=2:ngpus=1:mem=16gb:host=node4:gpu_model=a100",
        "-l", "walltime=02:00:00", "-q", "gpu", "-A", "lab-42",
        "-l", "place=excl", "-P", "proj",
    )  # fmt: skip
    assert command.stdin == b"#!/bin/sh\n:\necho hi\n"


def test_torque_asks_by_nodes() -> None:
    argv = submit(
        Torque(), node="node4", gpus=1, cpus=2, mem="16G", time_limit_s=90000, partition="gpu",
        account="lab", qos="high", constraint="bigmem",
    ).argv  # fmt: skip
    assert argv == (
        *HOLDER, "-l", "nodes=node4:ppn=2:gpus=1:bigmem", "-l", "mem=16gb", "-l", "qos=high",
        "-l", "walltime=25:00:00", "-q", "gpu", "-A", "lab",
    )  # fmt: skip


def test_several_nodes() -> None:
    assert submit(PBS(), nodes=2, gpus=1).argv[-4:] == (
        "-l", "select=2:ngpus=1", "-l", "place=scatter",
    )  # fmt: skip
    argv = submit(Torque(), nodes=2, gpus=1, cpus=4, mem="8G").argv
    assert argv[-4:] == ("-l", "nodes=2:ppn=4:gpus=1", "-l", "mem=16gb")


@pytest.mark.parametrize("scheduler", [PBS(), Torque()])
def test_what_is_not_asked_for_is_left_to_the_site(scheduler: Qstat) -> None:
    words = ("-f", "-l", "select=1") if scheduler.name == "pbs" else ("-l", "nodes=1")
    assert submit(scheduler, gpus=0).argv == (*HOLDER, *words)


@pytest.mark.parametrize(
    ("log_dir", "path"),
    [("~/tk/log", "tk/log/tk-x.log"), ("/a/", "/a/tk-x.log"), ("~/", "tk-x.log")],
)
def test_log_directory(log_dir: str, path: str) -> None:
    command = PBS().submit(ResourceRequest(), job_name="tk-x", body="", log_dir=log_dir)
    assert command.argv[command.argv.index("-o") + 1] == path


@pytest.mark.parametrize(
    "request_",
    [
        {"partition": "a b"}, {"partition": "-x"}, {"account": "x\n#PBS -N y"}, {"mem": "16Q"},
        {"node": "-n"}, {"node": "a:ncpus=9 "}, {"gpus": -1}, {"cpus": 0}, {"nodes": 0},
        {"time_limit_s": 0}, {"constraint": "a b"}, {"constraint": "x=1+2:y"},
    ],
)  # fmt: skip
def test_values_that_cannot_be(request_: dict[str, object]) -> None:
    for scheduler in (PBS(), Torque()):
        with pytest.raises(UsageError):
            submit(scheduler, **request_)


def test_a_node_to_oneself_reservations_and_requeue() -> None:
    alone = submit(PBS(), exclusive=True).argv
    assert alone[-4:] == ("-l", "select=1", "-l", "place=excl")
    assert submit(PBS(), exclusive=True, nodes=2).argv[-1] == "place=scatter:excl"
    torque = submit(Torque(), exclusive=True, reservation="r.1").argv
    assert torque[-4:] == ("-l", "advres=r.1", "-l", "naccesspolicy=singlejob")
    for scheduler in (PBS(), Torque()):
        again = submit(scheduler, requeue=True).argv
        assert again[again.index("-r") + 1] == "y"


def test_what_a_dialect_lacks_is_said() -> None:
    with pytest.raises(UsageError, match="queue of its own"):
        submit(PBS(), reservation="R7")
    with pytest.raises(UsageError, match="no QOS"):
        submit(PBS(), qos="high")
    with pytest.raises(UsageError, match="number of nodes"):
        submit(Torque(), node="node4", nodes=2)


@pytest.mark.parametrize("log_dir", ["", "host:/x", "/a,b", "/a\nb", "-x"])
def test_log_directories_that_qsub_would_misread(log_dir: str) -> None:
    with pytest.raises(UsageError):
        PBS().submit(ResourceRequest(), job_name="tk-x", body="", log_dir=log_dir)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("-l place=excl", ["-l", "place=excl"]), ("-Pproj", ["-P", "proj"]),
        ("-W group_list=x", ["-W", "group_list=x"]), ("-p 10", ["-p", "10"]),
        ("-m n", ["-m", "n"]),
    ],
)  # fmt: skip
def test_extra_lines(line: str, words: list[str]) -> None:
    assert check_extra(line) == words


@pytest.mark.parametrize(
    "line",
    [
        "-N x", "-Nx", "-o /x", "-J 0-3", "-t 1-3", "-I", "-V", "-z", "-l select=1", "-h",
        "-l mem=1gb,walltime=1:00", "-l nodes=2", "-W block=true", "--version", "script.sh", "",
        "-l a\n-N b", "-", "-S /bin/csh", "-C '#x'", "-u bob",
    ],
)  # fmt: skip
def test_extra_lines_that_would_break_the_holder(line: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_extra(line)
    assert caught.value.cause or caught.value.hint or "control" in caught.value.message


@given(st.text(max_size=20))
def test_an_extra_line_is_an_option_or_refused(line: str) -> None:
    try:
        words = check_extra(line)
    except UsageError:
        return
    assert len(words) in (1, 2)
    assert words[0][0] == "-"
    assert len(words[0]) == 2


# --- qsub's answers ----------------------------------------------------------------------------


def test_the_full_id_is_taken() -> None:
    assert PBS().parse_submit(answer("qsub-ok")) == "14.login"
    banner = Completed(0, b"Welcome to PBS\n\n7.server.example.org\n", b"")
    assert Torque().parse_submit(banner) == "7.server.example.org"


def test_no_id_may_be_a_job_all_the_same() -> None:
    for out in (b"", b"thank you\n", b"27[].login\n"):
        with pytest.raises(SchedulerError) as caught:
            PBS().parse_submit(Completed(0, out, b""))
        assert caught.value.transient


@pytest.mark.parametrize(
    ("case", "cause", "hint"),
    [
        ("qsub-bad-queue", "Unknown queue", "qstat -Q"),
        ("qsub-bad-resource", "Unknown resource: nosuch", "pbsnodes"),
        ("qsub-bad-walltime", "walltime", "another time"),
        ("qsub-torque-gpus-syntax", "node(s) specification error", "PBS or Torque"),
        ("qsub-bad-name", "illegal -N value", "extra"),
        ("qsub-bad-option", "invalid option", "extra"),
    ],
)
def test_refusals_keep_pbs_words_and_give_a_hint(case: str, cause: str, hint: str) -> None:
    with pytest.raises(SchedulerError) as caught:
        PBS().parse_submit(answer(case))
    error = caught.value
    assert not error.transient
    assert cause in (error.cause or "")
    assert hint in (error.hint or "")
    assert "usage" not in error.one_line()


def test_a_server_that_is_away_is_tried_again() -> None:
    for stderr in (
        b"Connection refused\nqsub: cannot connect to server login (errno=111)\n",
        b"qsub: cannot connect to server s (errno=15137) could not connect to trqauthd\n",
        b"qsub: Communication failure.\n",
    ):
        with pytest.raises(SchedulerError) as caught:
            PBS().parse_submit(Completed(1, b"", stderr))
        assert caught.value.transient


@pytest.mark.parametrize(
    "text",
    ["Name a project, then try again", "gpu is temporarily closed", "your last job had a time out"],
)
def test_a_hook_of_the_site_refuses_once_in_its_own_words(text: str) -> None:
    lines = "\n".join([f"qsub: {text}", *(f"rule {number}" for number in range(5))])
    with pytest.raises(SchedulerError) as caught:
        PBS().parse_submit(Completed(169, b"", lines.encode()))
    error = caught.value
    assert not error.transient
    assert error.cause and text in error.cause and "rule 4" in error.cause
    assert "does not answer" not in (error.hint or "")


@pytest.mark.parametrize(
    "line",
    [
        "qsub: Time out",
        "Operation timed out",
        "qsub: submit error (Try again MSG=busy)",
        "pbs_iff: Resource temporarily unavailable",
        # Of the shell, where PBS lies on a file server that is slow.
        "sh: line 1: /opt/pbs/bin/qsub: Stale file handle",
    ],
)
def test_the_servers_own_words_are_tried_again(line: str) -> None:
    with pytest.raises(SchedulerError) as caught:
        PBS().parse_submit(Completed(1, b"", line.encode()))
    assert caught.value.transient


def test_no_qsub_at_all() -> None:
    with pytest.raises(SchedulerError) as caught:
        PBS().parse_submit(Completed(127, b"", b"sh: 1: qsub: not found\n"))
    assert "login host" in (caught.value.hint or "")
