"""The holder's body, run by real shells."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tunnelkit.errors import UsageError
from tunnelkit.scheduler.base import Command
from tunnelkit.scheduler.job_script import (
    HolderStatus,
    body,
    cancelling,
    parse_status,
    read_status,
    status_of,
)

SHELLS = [shell for shell in ("dash", "bash", "busybox") if shutil.which(shell)]
DEADLINE_S = 20.0

#: Tells its signals and its start in a file, ends with 7 on TERM.
AGENT = """
import os, signal, sys
def tell(text):
    with open(sys.argv[1], "a") as out: out.write(text + "\\n")
def term(*_):
    tell("TERM"); os._exit(7)
signal.signal(signal.SIGTERM, term)
signal.signal(signal.SIGUSR1, lambda *_: tell("USR1"))
sigint = "ignored" if signal.getsignal(signal.SIGINT) == signal.SIG_IGN else "default"
tell(f"start SIGINT={sigint} X={os.environ.get('X')} {sys.argv[2:]}")
while True: signal.pause()
"""


def poll(condition: object, what: str) -> None:
    end = time.monotonic() + DEADLINE_S
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, f"{what} did not come"
        time.sleep(0.01)


def text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def is_zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> list[str]:
    return ["busybox", "sh"] if request.param == "busybox" else [request.param]


@contextmanager
def holder(shell: list[str], home: Path, script: str) -> Iterator[subprocess.Popen[bytes]]:
    env = {**os.environ, "HOME": str(home), "SLURMD_NODENAME": "node4"}
    process = subprocess.Popen(
        [*shell, "-s"], stdin=subprocess.PIPE, env=env, cwd=home, start_new_session=True,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin
    process.stdin.write(script.encode())
    process.stdin.close()
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stderr
        process.stderr.close()


def script_for(tmp_path: Path, *words: str, prologue: str = "") -> str:
    (tmp_path / "agent dir").mkdir(exist_ok=True)
    (tmp_path / "agent dir" / "agent.py").write_text(AGENT)
    argv = [sys.executable, "~/agent dir/agent.py", "~/out file", *words]
    return body(agent_argv=argv, prologue=prologue, status_file="~/tk/st/status")


def test_life_of_a_holder(shell: list[str], tmp_path: Path) -> None:
    words = ["a b", "$HOME `x` \"q\" 'q' \\", "*", "new\nline", "{brace}"]
    out, status = tmp_path / "out file", tmp_path / "tk/st/status"
    with holder(shell, tmp_path, script_for(tmp_path, *words)) as process:
        poll(lambda: "start" in text(out), "the agent")
        assert repr(words) in text(out)
        poll(status.exists, "the status file")
        running = parse_status(status.read_text())
        assert running is not None
        assert running.node == "node4"
        assert running.pid is not None
        cmdline = Path(f"/proc/{running.pid}/cmdline").read_bytes()
        assert b"agent.py" in cmdline, "the pid is the agent's own"
        process.send_signal(signal.SIGUSR1)
        poll(lambda: "USR1" in text(out), "USR1")
        assert process.poll() is None, "USR1 ends nothing"
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 7
    assert "TERM" in text(out)
    assert parse_status(status.read_text()) == HolderStatus(exit_code=7)
    assert status.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in status.parent.iterdir()] == ["status"]
    if subprocess.run(["env", "--default-signal=INT", "true"], check=False).returncode == 0:
        assert "SIGINT=default" in text(out)


@pytest.mark.parametrize("stopped", [True, False])
def test_a_term_for_all_processes_of_the_job_at_once(
    shell: list[str], tmp_path: Path, stopped: bool
) -> None:
    out, status = tmp_path / "out file", tmp_path / "tk/st/status"
    for _ in range(1 if stopped else 8):
        out.unlink(missing_ok=True)
        with holder(shell, tmp_path, script_for(tmp_path)) as process:
            poll(lambda: "start" in text(out), "the agent")
            poll(lambda: "running" in text(status), "the status file")
            running = parse_status(status.read_text())
            assert running is not None
            assert running.pid is not None
            if stopped:
                # Its own TERM and its agent's end are one moment for the holder.
                process.send_signal(signal.SIGSTOP)
                os.waitid(os.P_PID, process.pid, os.WSTOPPED)
                os.kill(running.pid, signal.SIGTERM)
                poll(partial(is_zombie, running.pid), "the agent's end")
                process.send_signal(signal.SIGTERM)
                process.send_signal(signal.SIGCONT)
            else:
                os.killpg(process.pid, signal.SIGTERM)
            code = process.wait(DEADLINE_S)
        assert parse_status(status.read_text()) == HolderStatus(exit_code=code)
        # bash can lose the agent's code then, and tells the signal's.
        assert code in ((7, 143) if shell == ["bash"] else (7,))


def test_the_agents_own_end_is_the_jobs(shell: list[str], tmp_path: Path) -> None:
    script = body(agent_argv=["sh", "-c", "exit 3"], prologue="", status_file="~/s")
    with holder(shell, tmp_path, script) as process:
        assert process.wait(DEADLINE_S) == 3
    assert text(tmp_path / "s") == "ended 3\n"


def test_a_killed_agent_is_told(shell: list[str], tmp_path: Path) -> None:
    script = body(agent_argv=["sh", "-c", "kill -9 $$"], prologue="", status_file="~/s")
    with holder(shell, tmp_path, script) as process:
        assert process.wait(DEADLINE_S) == 137
    assert text(tmp_path / "s") == "ended 137\n"


@pytest.mark.parametrize(
    ("prologue", "code"),
    [
        ("export X='it'\"'\"'s set'", 0),
        ('export X="it\'s set"\r\n# a comment without an end', 0),
        ("set -eu\nexport X=\"it's set\"\ntrap 'exit 9' EXIT TERM", 0),
        ('cd /\nX="it\'s set" && export X\nfalse', 0),
        ("exit 5", 5),
        ("set -e\nfalse", 1),
    ],
)
def test_prologue(shell: list[str], tmp_path: Path, prologue: str, code: int) -> None:
    script = body(
        agent_argv=["sh", "-c", 'test "$X" = "it\'s set"'],
        prologue=prologue,
        status_file="~/s",
    )
    with holder(shell, tmp_path, script) as process:
        assert process.wait(DEADLINE_S) == code
    assert text(tmp_path / "s") == f"ended {code}\n"


@pytest.mark.skipif(not shutil.which("bash"), reason="`source` is bash's word, and bash is absent")
def test_source_works_where_sh_has_none(shell: list[str], tmp_path: Path) -> None:
    (tmp_path / "activate").write_text("export X=1\n")
    script = body(
        agent_argv=["sh", "-c", 'test "$X" = 1'],
        prologue="source ~/activate",
        status_file="~/s",
    )
    with holder(shell, tmp_path, script) as process:
        assert process.wait(DEADLINE_S) == 0


def test_signals_during_the_prologue(shell: list[str], tmp_path: Path) -> None:
    """The warning must not kill what is starting."""
    prologue = 'echo here > ~/here; while [ -z "$tk_warned" ]; do :; done'
    with holder(shell, tmp_path, script_for(tmp_path, prologue=prologue)) as process:
        poll(lambda: text(tmp_path / "here").strip(), "the prologue")
        # Told only once the agent's pid is known: before, there is nobody to pass USR1 on to.
        poll(lambda: "running" in text(tmp_path / "tk/st/status"), "the status file")
        process.send_signal(signal.SIGUSR1)
        poll(lambda: "start" in text(tmp_path / "out file"), "the agent")
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 7


#: Lines of the body that stand in the middle of a word or of an `if`.
_WITHIN = (" ", "$tk_prologue", "exec ", "fi", "}")


def _moments(script: str) -> list[int]:
    """Indexes of the body's lines, from its traps to its wait, that a signal can precede."""
    lines = script.splitlines()
    first = max(index for index, line in enumerate(lines) if line.startswith("trap "))
    last = next(index for index, line in enumerate(lines) if line.startswith("while "))
    return [index for index in range(first + 1, last + 1) if not lines[index].startswith(_WITHIN)]


def test_term_between_any_two_lines_ends_holder_and_agent(shell: list[str], tmp_path: Path) -> None:
    """Above all where the agent has just been forked, and may still have the holder's traps."""
    script = body(agent_argv=["sleep", "600"], prologue="", status_file=f"{tmp_path}/s")
    moments = _moments(script)
    assert len(moments) > 8
    for index in moments * 3:
        lines = script.splitlines()
        before = lines[index]
        lines.insert(index, "kill -TERM $$")
        with holder(shell, tmp_path, "\n".join(lines)) as process:
            try:
                assert process.wait(DEADLINE_S) == 143, before
            except subprocess.TimeoutExpired:
                pytest.fail(f"TERM before {before!r} was lost")
        assert text(tmp_path / "s") == "ended 143\n"
        assert [path.name for path in tmp_path.iterdir()] == ["s"]


@pytest.mark.parametrize("to", ["holder", "all"])
def test_term_at_any_time_ends_holder_and_agent(shell: list[str], tmp_path: Path, to: str) -> None:
    """Slurm's TERM goes to all processes of the job, others' to the holder alone."""
    script = script_for(tmp_path)
    for number in range(20):
        with holder(shell, tmp_path, script) as process:
            time.sleep(0.003 * number)
            (os.killpg if to == "all" else os.kill)(process.pid, signal.SIGTERM)
            process.stdin = None  # closed; `communicate` would flush it
            # To its end: each of the processes holds it open.
            process.communicate(timeout=DEADLINE_S)
            assert process.returncode in (-signal.SIGTERM, 143, 7)


@pytest.mark.parametrize(("age_s", "code"), [(0, 143), (7200, 3)])
def test_a_job_that_was_cancelled_before_its_script_began_starts_no_agent(
    shell: list[str], tmp_path: Path, age_s: int, code: int
) -> None:
    script = body(
        agent_argv=["sh", "-c", "exit 3"], prologue="", status_file="~/a b/s", per_job=True
    )
    (tmp_path / "a b").mkdir()
    status = status_of("~/a b/s", "12")
    cancel = cancelling(Command(("sh", "-c", 'cat; echo "$1"', "sh", "x y"), b"in "), status)
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "SLURM_JOB_ID": "12"}
    done = subprocess.run(cancel.argv, input=cancel.stdin, env=env, check=True, capture_output=True)
    assert done.stdout == b"in x y\n"
    (mark,) = (tmp_path / "a b").iterdir()
    assert mark.stat().st_mode & 0o777 == 0o600
    os.utime(mark, (time.time() - age_s,) * 2)
    assert subprocess.run(shell, input=script.encode(), env=env, check=False).returncode == code
    assert [path.name for path in (tmp_path / "a b").iterdir()] == ["s.12"]
    assert text(tmp_path / "a b/s.12") == f"ended {code}\n"


def test_a_mark_that_cannot_be_left_stops_no_cancellation(tmp_path: Path) -> None:
    command = cancelling(Command(("echo", "cancelled")), f"{tmp_path}/missing/s.1")
    done = subprocess.run(command.argv, check=True, capture_output=True)
    assert (done.stdout, done.stderr) == (b"cancelled\n", b"")


@pytest.mark.parametrize("variable", ["SLURM_JOB_ID", "PBS_JOBID"])
def test_each_job_tells_in_a_file_of_its_own(
    shell: list[str], tmp_path: Path, variable: str
) -> None:
    for job_id, code in (("7.login.site", 3), ("12", 4)):
        script = body(
            agent_argv=["sh", "-c", f"exit {code}"],
            prologue="",
            status_file="~/a b/s",
            per_job=True,
        )
        env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), variable: job_id}
        subprocess.run(shell, input=script.encode(), env=env, check=False)
        status = Path(status_of(f"{tmp_path}/a b/s", job_id))
        assert parse_status(status.read_text()) == HolderStatus(exit_code=code)
    assert sorted(path.name for path in (tmp_path / "a b").iterdir()) == ["s.12", "s.7"]


def test_the_status_file_is_read_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "a 'b").write_text("running node4 12\n")
    done = subprocess.run(
        read_status("~/a 'b").argv, env={"HOME": str(tmp_path)}, capture_output=True, check=True
    )
    shown = done.stdout.decode()
    assert parse_status(shown) == HolderStatus(node="node4", pid=12)
    assert parse_status(f"Welcome\n{shown}") == HolderStatus(node="node4", pid=12), "a greeting"
    assert parse_status(f"running n 1\n{shown[:-1]}x\n") is None


@pytest.mark.parametrize("content", ["", "running", "running n", "ended x\n", "ended 1\nended 2\n"])
def test_half_a_status_says_nothing(content: str) -> None:
    assert parse_status(content) is None


#: Stands for the black box: tells its start and its end, in its own time.
BOX = """
import os, signal, sys, time
def tell(text):
    with open(sys.argv[1], "a") as out: out.write(text + "\\n")
signal.signal(signal.SIGTERM, lambda *_: tell("TERM"))
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
tell("start " + repr(sys.argv[2:]))
info = signal.sigwaitinfo([signal.SIGUSR2])
time.sleep(float(os.environ.get("BOX_S", "0.2")))
tell(open(sys.argv[2]).read().strip() + f" {info.si_pid == os.getppid()}")
"""


def script_with_box(tmp_path: Path, *, per_job: bool = True) -> str:
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "a box.py").write_text(BOX)
    return body(
        agent_argv=[sys.executable, "~/agent.py", "~/out"],
        prologue="",
        status_file="~/st/status",
        per_job=per_job,
        box_argv=[sys.executable, "~/a box.py", "~/seen $it"],
    )


@pytest.mark.parametrize("how", ["TERM", "KILL"])
def test_a_box_outlives_the_agent_and_reads_its_end(
    shell: list[str], tmp_path: Path, how: str
) -> None:
    seen, code = tmp_path / "seen $it", {"TERM": 7, "KILL": 137}[how]
    with holder(shell, tmp_path, script_with_box(tmp_path, per_job=False)) as process:
        poll(lambda: "start" in text(seen) and "start" in text(tmp_path / "out"), "both")
        status = tmp_path / "st/status"
        poll(lambda: parse_status(text(status)), "the status")
        running = parse_status(status.read_text())
        assert running is not None and running.pid is not None
        os.kill(running.pid, getattr(signal, f"SIG{how}"))
        assert process.wait(DEADLINE_S) == code
        # The script has waited for the box's last record.
        assert text(seen).splitlines()[1:] == [f"ended {code} True"]
        assert text(seen).splitlines()[0] == f"start ['{status}', 'step']"


def test_a_box_that_hangs_keeps_no_job(
    shell: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOX_S", "60")
    with holder(shell, tmp_path, script_with_box(tmp_path)) as process:
        seen = tmp_path / "seen $it"
        poll(lambda: "start" in text(seen) and "start" in text(tmp_path / "out"), "both")
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 7
        # 2 s, and what a busy machine takes for 40 looks.
        assert time.monotonic() - begun < 12
        os.killpg(process.pid, signal.SIGKILL)


def test_nonsense_is_refused() -> None:
    with pytest.raises(UsageError):
        body(agent_argv=[], prologue="", status_file="/s")
    with pytest.raises(UsageError):
        body(agent_argv=["x"], prologue="a\0b", status_file="/s")
