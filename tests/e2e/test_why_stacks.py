"""Programs that stand still, by their real stacks: py-spy on the node, sent, or missing."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.slow_rig import Job, pretend_job
from tests.support.tkrig import eventually, line_of
from tunnelkit.diagnosis.evidence.job import JobView
from tunnelkit.diagnosis.evidence.stacks import StackView
from tunnelkit.diagnosis.running.rules import judge_running, to_ask
from tunnelkit.diagnosis.verdict import Certainty, Verdict
from tunnelkit.model import JobState
from tunnelkit.probe.debugger import states_of
from tunnelkit.session.why.stacks import py_spy_stacks

pytestmark = [pytest.mark.slow, pytest.mark.why("slow")]

RECEIVE = """\
    import socket
    here, there = socket.socketpair()
    def step():
        return here.recv(1)
    print("ready", flush=True)
    step()
    """
JOIN = """\
    import threading
    print("ready", flush=True)
    threading.Event().wait()
    """
DEBUGGED = """\
    import os
    os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"
    import debugpy
    debugpy.listen(("127.0.0.1", 0))
    print("ready", flush=True)
    debugpy.wait_for_client()
    """
#: In the sampled process's place: no py-spy beside it or in PATH.
BARE = {"PATH": "/usr/bin:/bin"}


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    with pretend_job(tmp_path) as made:
        yield made


async def enter(
    job_id: str, node: str, argv: Sequence[str], *, stdin: bytes, timeout_s: float
) -> bytes:
    """Runs it here, as in the job on its node."""

    def run() -> bytes:
        done = subprocess.run(
            argv, input=stdin, capture_output=True, timeout=timeout_s, check=True, env=BARE
        )
        return done.stdout

    return await asyncio.to_thread(run)


def judged(job: Job, *, with_stacks: bool = True) -> tuple[Verdict, tuple[StackView, ...]]:
    window = job.window(2)
    view = JobView(job.id, JobState.RUNNING, "RUNNING", directory=str(job.dir))
    stacks: tuple[StackView, ...] = ()
    if with_stacks:
        wanted = to_ask(view, [window])
        assert wanted
        stacks, missing = asyncio.run(py_spy_stacks(enter, job.id, wanted, sys.executable))
        assert missing == ()
    return judge_running(view, [window], 0.0, stacks)[0], stacks


def test_the_line_where_a_program_waits_is_named(job: Job) -> None:
    pid = job.python(RECEIVE).pid
    verdict, _ = judged(job)
    line = line_of(RECEIVE, "here.recv(1)")
    assert verdict.code == "hang" and verdict.certainty is Certainty.LIKELY
    assert f"python (pid {pid}) waits in recv() at program0.py:{line}" in verdict.sentence.replace(
        "python3", "python"
    )
    assert any(f"step() at program0.py:{line}, called by" in one.text for one in verdict.because)


def test_py_spy_is_sent_where_the_node_has_none(job: Job, tmp_path: Path) -> None:
    """The program's Python is one without py-spy beside it."""
    bare = tmp_path / "bin" / "python3"
    bare.parent.mkdir()
    bare.symlink_to(os.path.realpath(sys.executable))
    path = job.dir / "wait.py"
    path.write_text(JOIN.replace("\n    ", "\n").lstrip())
    job.start([str(bare), str(path)])
    verdict, _ = judged(job)
    assert "wait() at wait.py:3" in verdict.sentence


def test_a_program_that_waits_for_an_editor_does_not_hang(job: Job) -> None:
    job.python(DEBUGGED)
    verdict, _ = judged(job)
    line = line_of(DEBUGGED, "debugpy.wait_for_client()")
    assert verdict.code == "waits-for-editor" and verdict.certainty is Certainty.LIKELY
    assert f"waits for an editor before its program goes on: program0.py:{line}" in verdict.sentence


def test_without_a_stack_debugpy_leaves_it_open(job: Job) -> None:
    pid = job.python(DEBUGGED).pid
    verdict, _ = judged(job, with_stacks=False)
    assert verdict.code == "at-breakpoint" and verdict.certainty is Certainty.UNKNOWN
    assert f"(pid {pid})" in verdict.sentence and "can't be seen from outside" in verdict.sentence


def test_without_a_stack_an_empty_port_of_debugpy_tells(job: Job) -> None:
    """The adapter listens once the program is about to wait."""
    script = job.dir / "train.py"
    script.write_text("print('never', flush=True)\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ("-m", "debugpy", "--listen", str(port), "--wait-for-client", str(script))
    process = subprocess.Popen(
        [sys.executable, *words],
        stdin=subprocess.DEVNULL,
        env={**os.environ, "SLURM_JOB_ID": job.id},
        start_new_session=True,
    )
    job.started.append(process)
    tcp = Path("/proc/net/tcp")
    asyncio.run(eventually(lambda: "0A" in states_of(port, tcp.read_text()), "debugpy listens"))
    verdict, _ = judged(job, with_stacks=False)
    assert verdict.code == "waits-for-editor" and verdict.certainty is Certainty.LIKELY
    assert f"(pid {process.pid}) waits for an editor" in verdict.sentence
    with socket.create_connection(("127.0.0.1", port)):
        verdict, _ = judged(job, with_stacks=False)
    assert verdict.code == "at-breakpoint" and verdict.certainty is Certainty.UNKNOWN


def test_a_prompt_on_a_terminal_is_no_hang(job: Job) -> None:
    """With readline, as pdb and `input()` have it, which waits in select(2)."""
    near, far = os.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", "import readline; input('ready')"],
            stdin=far,
            stdout=far,
            stderr=far,
            env={**os.environ, "SLURM_JOB_ID": job.id},
            start_new_session=True,
        )
        job.started.append(process)
        said = b""
        while b"ready" not in said:
            said += os.read(near, 100)
        verdict, _ = judged(job, with_stacks=False)
    finally:
        os.close(near)
        os.close(far)
    assert verdict.code == "waits-for-input" and verdict.certainty is Certainty.LIKELY
    assert "reads its terminal" in verdict.sentence


def test_a_hang_with_debugpy_loaded_is_known_by_its_stack(job: Job) -> None:
    job.python(
        DEBUGGED.replace("debugpy.wait_for_client()", "import threading; threading.Event().wait()")
    )
    verdict, _ = judged(job)
    assert verdict.code == "hang" and "wait() at program0.py:6" in verdict.sentence


def test_a_read_of_stdin_is_no_hang(job: Job, tmp_path: Path) -> None:
    """As pdb's prompt waits, where stdin is no terminal."""
    source = "print('ready', flush=True); input()"
    out, into = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", source],
            stdin=out,
            stdout=subprocess.PIPE,
            env={**os.environ, "SLURM_JOB_ID": job.id},
            start_new_session=True,
        )
        job.started.append(process)
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        verdict, _ = judged(job)
    finally:
        os.close(into)
        os.close(out)
    assert verdict.code == "waits-for-input" and verdict.certainty is Certainty.LIKELY
