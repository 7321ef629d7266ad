"""A queue at another PBS server than the login host's own: its jobs are found, by a real sh."""

from __future__ import annotations

import os
import pwd
import subprocess
from pathlib import Path

import pytest

from tests.unit.scheduler.pbs_transcripts import answer
from tunnelkit.model import Completed
from tunnelkit.scheduler.detect import Detected
from tunnelkit.scheduler.factory import SCHEDULERS, SchedulerKind
from tunnelkit.scheduler.pbs.adapter import PBS
from tunnelkit.scheduler.pbs.submit import server_of

#: Answers about the other server or its job, and else says that there is nothing.
_PROGRAM = """#!/bin/sh
case "$*" in *@casper* | *14.casper*) {answer} ;; esac
"""


def _jobs(owner: str) -> bytes:
    return answer("qstat-running-f").stdout.replace(b"alice@login", f"{owner}@login".encode())


@pytest.mark.parametrize("kind", SCHEDULERS[1:], ids=lambda kind: kind.name)
@pytest.mark.parametrize("with_qselect", [True, False])
@pytest.mark.parametrize("queue", ["gpu@casper", "@casper", "casper", None])
def test_find_asks_the_server_of_the_queue_too(
    tmp_path: Path, kind: SchedulerKind, with_qselect: bool, queue: str | None
) -> None:
    (tmp_path / "jobs").write_bytes(_jobs(pwd.getpwuid(os.getuid()).pw_name))
    programs = {"qstat": f"cat '{tmp_path}/jobs'"}
    if with_qselect:
        programs["qselect"] = "echo 14.casper"
    for name, says in programs.items():
        (tmp_path / name).write_text(_PROGRAM.format(answer=says))
        (tmp_path / name).chmod(0o755)
    bin_dirs = dict.fromkeys(("qselect", "qstat"), str(tmp_path))
    pbs = kind.make(Detected("pbs", bin_dirs=bin_dirs), False, queue)
    answer = subprocess.run(pbs.find("debug").argv, capture_output=True, check=True)
    jobs = pbs.parse_find(Completed(0, answer.stdout, answer.stderr), "debug")
    assert len(jobs) == ("@" in (queue or ""))


def test_a_job_that_both_questions_find_is_one_job() -> None:
    """The named server may be the default one: a second job of the name would be cancelled."""
    answer = b"tk-user alice\n" + _jobs("alice") * 2
    assert len(PBS().parse_find(Completed(0, answer, b""), "debug")) == 1


def test_what_qsub_refuses_names_no_server() -> None:
    assert server_of("gpu@casper-pbs") == "casper-pbs"
    assert [server_of(one) for one in ("gpu", None, "", "gpu@-x y", "gpu@a;b")] == [""] * 5
