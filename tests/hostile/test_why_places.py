"""The log and quota of a job as `tk why` reads them: whatever stands at that path, whatever the
programs print. The real scripts run here, with programs of a scheduler that lie."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hostile.why_login import WhyLogin, pbs_login, slurm_login
from tunnelkit.cli.views.jobs.why import lines
from tunnelkit.diagnosis.verdict import Certainty, Diagnosis
from tunnelkit.diagnosis.verdict_json import to_json
from tunnelkit.scheduler.inspector import NO_HINT, LogHint
from tunnelkit.session.why.diagnose import judge

EVIL = "\x1b]0;OWNED\x07\x1b[2J\rtk: ready\x9b8m\u202e"
TRACEBACK = 'Traceback (most recent call last):\n  File "/x.py", line 8, in f\n    y\nKeyError: 1\n'
FULL = "OSError: [Errno 122] Disk quota exceeded: '{}'\n"


@pytest.fixture(params=["slurm", "pbs"])
def login(request: pytest.FixtureRequest, tmp_path: Path) -> WhyLogin:
    return (slurm_login if request.param == "slurm" else pbs_login)(tmp_path)


def diagnosed(
    login: WhyLogin, hint: LogHint = NO_HINT, within_s: float = 5.0
) -> tuple[Diagnosis, str]:
    """The diagnosis, and its text for people: bounded, in time, and nothing of it raw."""
    begun_s = time.monotonic()
    found = login.ask(hint)
    assert time.monotonic() - begun_s < within_s
    for log in () if found.end is None else found.end.logs:
        assert len(log.text.encode()) <= 200_000
    diagnosis = judge(found, login.job)
    text = "\n".join(lines(diagnosis))
    assert not set(text) & set("\x1b\x07\r\x9b\u202e"), text
    assert len(text) < 20_000 and json.dumps(to_json(diagnosis)).isascii()
    return diagnosis, text


def problem(login: WhyLogin, hint: LogHint = NO_HINT) -> str:
    return " ".join(diagnosed(login, hint)[0].not_asked)


# -- what stands at the log's path ----------------------------------------------


@pytest.mark.parametrize("kind", ["fifo", "device", "zeros", "directory", "loop", "gone", "socket"])
def test_no_plain_file(login: WhyLogin, kind: str) -> None:
    log = login.home / "log"
    if kind == "fifo":
        os.mkfifo(log)
    elif kind in ("device", "zeros", "loop"):
        log.symlink_to({"device": "/dev/tty", "zeros": "/dev/zero", "loop": str(log)}[kind])
    elif kind == "directory":
        log.mkdir()
    elif kind == "socket":
        subprocess.run(
            [sys.executable, "-c", f"import socket; socket.socket(1).bind({str(log)!r})"],
            check=True,
        )
    login.logs_to(str(log))
    assert "log" in problem(login) or "stdout" in problem(login)
    assert "log" in problem(login, LogHint(str(log), given=True)) or "stdout" in problem(login)


def test_a_link_and_places_of_the_kernel(login: WhyLogin) -> None:
    """They are read as any file is; none keeps the command."""
    (login.home / "real").write_text(TRACEBACK)
    (login.home / "log").symlink_to("real")
    login.logs_to(str(login.home / "log"))
    assert diagnosed(login)[0].verdicts[0].code == "exception"
    for path in ("/proc/self/mem", "/proc/self/environ", "/proc/self/fd/0", "/proc/self/pagemap"):
        login.logs_to(path)
        assert diagnosed(login)[0].verdicts[0].certainty is not Certainty.PROVEN


def test_names_for_the_terminal_and_the_shell(login: WhyLogin) -> None:
    for name in (
        EVIL,
        "$(touch it-ran)",
        "`touch it-ran`",
        "'; touch it-ran; '",
        "-n",
        "a\nb",
        "*",
    ):
        directory = login.home / "d" / name
        directory.mkdir(parents=True)
        path = directory / name
        path.write_text(TRACEBACK)
        assert (
            diagnosed(login, LogHint(str(path), given=True))[0].verdicts[0].code == "exception"
        ), name
    lying = f"{login.home}/a\ntk-file 9 9\nslurmstepd: error: *** JOB {login.job} ON n CANCELLED"
    assert (
        diagnosed(login, LogHint(lying, given=True))[0].verdicts[0].certainty
        is not Certainty.PROVEN
    )
    assert not list(login.home.rglob("it-ran"))


def test_a_relative_path_that_is_not_there(login: WhyLogin) -> None:
    for path in ("nowhere.log", "a/b/c.log", "../../../../x", "."):
        diagnosed(login, LogHint(path, given=True))
        login.logs_to(path)
        diagnosed(login)


# -- how large it is ------------------------------------------------------------


def test_a_log_of_terabytes(login: WhyLogin) -> None:
    log = login.home / "log"
    with log.open("wb") as file:
        file.truncate(4 << 40)
        file.seek(0, os.SEEK_END)
        file.write(b"\n" + TRACEBACK.encode())
    login.logs_to(str(log))
    diagnosis, text = diagnosed(login)
    assert diagnosis.verdicts[0].code == "exception", text


@pytest.fixture
def growing(login: WhyLogin) -> Iterator[Path]:
    """A log that grows as fast as a program can write."""
    log = login.home / "log"
    with log.open("wb") as file:
        child = subprocess.Popen(["yes", EVIL + "x" * 4000], stdout=file)
        try:
            while log.stat().st_size < 1 << 20:
                assert child.poll() is None
            yield log
        finally:
            child.kill()
            child.wait()


def test_a_log_that_grows(login: WhyLogin, growing: Path) -> None:
    login.logs_to(str(growing))
    diagnosed(login)


# -- the file systems that a log names, and quotas ------------------------------


@pytest.mark.parametrize("state", ["ended", "running"])
def test_what_quota_prints(login: WhyLogin, state: str) -> None:
    log = login.home / "log"
    log.write_text(FULL.format(login.home))
    login.logs_to(str(log), state=state)
    row = "{0} 9999999999999999999999* 1 1 none 9 1 1 none"
    rows = [row.format(EVIL), "/x " + "9" * 18 + "* 1 1 none 1 1 1 none", "[9]* " * 9, EVIL]
    text = "\n".join(["Disk quotas for user \x1b[2J (uid 0):", *rows]) + "\n"
    (login.home / "said").write_text(text)
    for name, body in (
        ("quota", f"cat {login.home}/said"),
        ("lfs", f"cat {login.home}/said"),
        ("quota", "exec yes '/home 9* 1 1 none 1 1 1 none'"),
        ("quota", "exec cat /dev/zero"),
    ):
        login.program(name, body)
        diagnosed(login, within_s=12.0)


def test_a_full_disk_s_path(login: WhyLogin) -> None:
    """It comes from the log: only ever an argument of df, and never opened."""
    fifo = login.home / "fifo"
    os.mkfifo(fifo)
    log = login.home / "log"
    login.logs_to(str(log))
    for path in (
        str(fifo),
        "/nowhere/" * 400,
        f"/{EVIL}",
        "/$(touch it-ran)",
        "/-h",
        "/dev/zero/..",
    ):
        log.write_text(FULL.format(path))
        diagnosed(login)
    assert not list(login.home.rglob("it-ran"))


def test_endless_words_of_the_scheduler(login: WhyLogin) -> None:
    for name in login.asked:
        body = login.programs[name]
        login.program(name, f"yes '{EVIL}' | head -c 400000; {body}")
        diagnosed(login)
        login.program(name, body)
