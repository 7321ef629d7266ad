"""The scripts of a submission, run by the shells that login hosts have."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tunnelkit.errors import ConnectionFailed, SchedulerError
from tunnelkit.model import Completed
from tunnelkit.scheduler.base import Command
from tunnelkit.session.job import submission
from tunnelkit.session.job.submission import Submission, stop

SHELLS = [shell for shell in ("dash", "bash", "ksh", "zsh") if shutil.which(shell)]


class Login:
    """A login host with a sbatch that notes its calls, and its job's script."""

    def __init__(self, directory: Path, shell: str) -> None:
        self.dir = directory
        self.jobs = directory / "a home" / "jobs"
        self.jobs.mkdir(parents=True)
        self.shell = shell
        #: Called before and after each command.
        self.before: Callable[[], None] = lambda: None
        self.after: Callable[[], None] = lambda: None
        self.program("sbatch", 'cat >>"$0.script"; umask >>"$0.umask"; echo 7')
        self.program("scancel", 'echo "$@" >>"$0.ids"')
        self.program("squeue", 'printf "%s runs\\n" "$1"')

    def program(self, name: str, body: str) -> None:
        path = self.dir / name
        path.write_text(f'#!/bin/sh\necho call >>"$0.calls"\n{body}\n')
        path.chmod(0o755)

    def calls(self, name: str = "sbatch") -> int:
        path = self.dir / f"{name}.calls"
        return len(path.read_text().split()) if path.exists() else 0

    async def run(self, command: Command) -> Completed:
        self.before()
        assert command.argv[0] == "sh"
        process = await asyncio.create_subprocess_exec(
            shutil.which(self.shell) or "sh",
            *command.argv[1:],
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=self.dir,
        )
        out, err = await process.communicate(command.stdin)
        self.after()
        assert process.returncode is not None
        return Completed(process.returncode, b"Welcome!\n" + out, err)

    def submission(self, script: bytes = b"body\n") -> Submission:
        command = Command((str(self.dir / "sbatch"), "--job-name=x y"), script)
        cancel = (str(self.dir / "scancel"),)
        return Submission(
            self.run,
            command,
            cancel,
            look=(str(self.dir / "squeue"), "it's 7"),
            undecided="|PENDING|None|",
            jobs_dir=str(self.jobs),
            name="tk-p",
        )

    async def stop(self, own: Submission | None = None) -> bool:
        return await stop(self.run, str(self.jobs), "tk-p", own)


@pytest.fixture(params=SHELLS)
def login(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Login:
    monkeypatch.setattr(submission, "_FIRST_LOOK_S", 1)
    monkeypatch.setattr(submission, "_LOOK_S", 1)
    monkeypatch.setattr(submission, "_STOP_S", 1)
    monkeypatch.setattr(submission, "_AGAIN_S", 0.01)
    monkeypatch.setattr(submission, "_SETTLE_S", 0.01)
    return Login(tmp_path, request.param)


def unheard(seconds: float) -> None:
    pass


def lost() -> None:
    raise ConnectionFailed("the connection was lost", hint="", transient=True)


@pytest.mark.parametrize("when", ["before", "after", "none"])
async def test_a_ready_shell_that_fails_submits_nothing_twice(login: Login, when: str) -> None:
    asked = 0

    async def ready(command: Command) -> Completed | None:
        nonlocal asked
        asked += 1
        if when == "none":
            return None
        if when == "after":
            await login.run(command)
        raise ConnectionFailed("the shell is gone", hint="", transient=True)

    one = login.submission()
    one._ready = ready
    done = await one.answer(unheard)
    assert (done.exit_code, done.text, asked) == (0, "7\n", 1)
    assert len(list(login.jobs.glob("tk-p.sub-*/began"))) == 1


async def test_the_answer_is_had_at_once(login: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at the end of the wait."""
    monkeypatch.setattr(submission, "_FIRST_LOOK_S", 30)
    own_umask = os.umask(0o022)
    os.umask(own_umask)
    begin = time.monotonic()
    done = await login.submission(b"line 'one'\n\xff").answer(unheard)
    assert (done.exit_code, done.text) == (0, "7\n")
    assert time.monotonic() - begin < 30
    assert (login.dir / "sbatch.script").read_bytes() == b"line 'one'\n\xff"
    assert int((login.dir / "sbatch.umask").read_text(), 8) == own_umask, "the job inherits it"
    (directory,) = login.jobs.glob("tk-p.sub-*")
    assert directory.stat().st_mode & 0o077 == 0


async def test_a_refusal_is_the_programs_own(login: Login) -> None:
    login.program("sbatch", "echo some; echo 'no such partition' >&2; exit 3")
    done = await login.submission().answer(unheard)
    assert (done.exit_code, done.text, done.error_text) == (3, "some\n", "no such partition")


async def test_the_jobs_are_listed_after_an_accepted_submission(login: Login) -> None:
    login.program("sbatch", "cat >/dev/null; printf 7")  # without a last newline
    own = login.submission()
    assert (await own.answer(unheard)).text == "7"
    assert own.looked == Completed(0, b"it's 7 runs\n", b"")
    login.program("sbatch", "exit 3")
    refused = login.submission()
    assert (await refused.answer(unheard)).exit_code == 3
    assert refused.looked is None
    assert login.calls("squeue") == 1


async def test_a_job_that_the_scheduler_has_not_looked_at_is_listed_again(login: Login) -> None:
    said = 'read -r n <"$0.n"; echo $((n - 1)) >"$0.n"; [ $n -gt 0 ] && echo "7|PENDING|None|"'
    login.program("squeue", f'{said} || echo "7|RUNNING|None|"')
    (login.dir / "squeue.n").write_text("2\n")
    own = login.submission()
    assert (await own.answer(unheard)).text == "7\n"
    assert own.looked == Completed(0, b"7|RUNNING|None|\n", b"")
    # Not without end.
    login.program("squeue", 'echo "7|PENDING|None|"')
    again = login.submission()
    await again.answer(unheard)
    assert again.looked == Completed(0, b"7|PENDING|None|\n", b"")
    assert login.calls("squeue") == 3 + 5


@pytest.mark.parametrize("squeue", ["echo half; exit 1", 'read -r _ <"$(dirname "$0")/never"'])
async def test_a_list_that_fails_or_hangs_costs_only_the_list(login: Login, squeue: str) -> None:
    login.program("squeue", squeue)
    os.mkfifo(login.dir / "never")
    own = login.submission()
    assert (await own.answer(unheard)).text == "7\n"
    assert own.looked is None
    assert login.calls() == login.calls("squeue") == 1
    # The one that hangs, if it is that, ends.
    with contextlib.suppress(OSError):
        os.close(os.open(login.dir / "never", os.O_WRONLY | os.O_NONBLOCK))


async def test_a_list_that_is_late_is_not_made_again(login: Login) -> None:
    """The scheduler is slow just then."""
    own = login.submission()
    slow = 'read -r _ <"$(dirname "$0")/open"; echo "7|PENDING|None|"; echo x >>"$0.ended"'
    login.program("squeue", slow)
    os.mkfifo(login.dir / "open")
    assert (await own.answer(unheard)).text == "7\n"
    assert own.looked is None
    # The first one goes on now, and there is no second one, which would wait at the FIFO.
    await asyncio.to_thread((login.dir / "open").write_text, "go\n")
    while not (login.dir / "squeue.ended").exists():
        await asyncio.sleep(0.01)
    directory = own.directory
    while await _uses(directory):
        await asyncio.sleep(0.01)
    assert login.calls("squeue") == 1


async def _uses(directory: str) -> bool:
    """True while a shell of the submission is alive."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if directory.encode() in words and int(path.parent.name) != os.getpid():
                return True
    return False


async def test_a_list_is_no_older_than_its_answer(login: Login) -> None:
    """The reply was lost, and is asked for again."""
    login.program("squeue", 'echo x >>"$0.times"; wc -l <"$0.times" | tr -d " "')
    losses = [lost]

    def after() -> None:
        if losses:
            losses.pop()()

    login.after = after
    own = login.submission()
    assert (await own.answer(unheard)).text == "7\n"
    assert own.looked is not None
    assert int(own.looked.stdout) == login.calls("squeue")


async def test_lost_replies_and_lost_requests_make_one_call(login: Login) -> None:
    turns = iter([lost, lambda: None, lost, lambda: None])
    login.before = lambda: next(turns, lambda: None)()
    login.after = lambda: next(turns, lambda: None)()
    assert (await login.submission().answer(unheard)).text == "7\n"
    assert login.calls() == 1


async def test_a_slow_one_is_waited_for_and_told(login: Login) -> None:
    login.program("sbatch", f"while [ ! -e {login.dir}/open ]; do sleep 0.05; done; echo 7")
    told: list[float] = []

    def waiting(seconds: float) -> None:
        told.append(seconds)
        if len(told) == 2:
            (login.dir / "open").touch()

    assert (await login.submission().answer(waiting)).text == "7\n"
    assert len(told) == 2
    assert login.calls() == 1


async def test_another_session_waits_for_the_same(login: Login) -> None:
    login.program("sbatch", f"while [ ! -e {login.dir}/open ]; do sleep 0.05; done; echo 7")
    first = asyncio.create_task(login.submission().answer(unheard))
    while not login.calls():
        await asyncio.sleep(0.01)
    told: list[float] = []

    def waiting(seconds: float) -> None:
        told.append(seconds)
        if len(told) == 2:  # it has looked once
            (login.dir / "open").touch()

    second = asyncio.create_task(login.submission().answer(waiting))
    assert (await first).text == (await second).text == "7\n"
    assert login.calls() == 1


async def test_a_truncated_script_is_not_submitted(login: Login) -> None:
    whole = login.submission(b"all of it\n")

    async def cut(command: Command) -> Completed:
        return await login.run(Command(command.argv, command.stdin[:4]))

    whole._run = cut
    with pytest.raises(SchedulerError, match="could not keep"):
        await whole.answer(unheard)
    assert login.calls() == 0


async def test_stopped_before_it_begins_it_never_does(login: Login) -> None:
    own = login.submission()
    assert await login.stop(own)
    with pytest.raises(SchedulerError, match="stopped"):
        await own.answer(unheard)
    assert login.calls() == 0


@pytest.mark.parametrize(("said", "job"), [("7;site", "7"), ("14[].login", "14[].login")])
async def test_stopped_without_an_answer_it_cancels_its_own_job(
    login: Login, said: str, job: str
) -> None:
    """Also an array of PBS's."""
    login.program("sbatch", f"while [ ! -e {login.dir}/open ]; do sleep 0.05; done; echo '{said}'")
    first = asyncio.create_task(login.submission().answer(unheard))
    while not login.calls():
        await asyncio.sleep(0.01)
    assert not await login.stop()
    (login.dir / "open").touch()
    assert (await first).text == f"{said}\n"
    while not login.calls("scancel"):
        await asyncio.sleep(0.01)
    assert (login.dir / "scancel.ids").read_text() == f"{job}\n"
    assert await login.stop()


async def test_one_that_is_gone_is_told_and_the_next_one_is_another(login: Login) -> None:
    login.program("sbatch", 'kill -9 "$PPID" $$')
    with pytest.raises(SchedulerError, match="did not say") as caught:
        await login.submission().answer(unheard)
    assert caught.value.transient
    login.program("sbatch", "echo 8")
    assert (await login.submission().answer(unheard)).text == "8\n"
