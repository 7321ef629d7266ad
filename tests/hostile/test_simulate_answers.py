"""`tk simulate` and a login host that lies in the answer to its one check command."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.pty_terminal import on_a_terminal
from tests.support.scheduler_rig import Programs
from tests.support.scheduler_rig import host as host
from tests.support.scheduler_rig import programs as programs
from tests.support.scheduler_rig import project as project
from tests.support.tkrig import Project
from tunnelkit import child_process
from tunnelkit.cli.views.jobs.simulate import check_lines
from tunnelkit.config.load import load
from tunnelkit.errors import ConnectionFailed, ExitCode, SchedulerError, TunnelkitError
from tunnelkit.model import Completed
from tunnelkit.scheduler.base import Command
from tunnelkit.scheduler.detect import parse_detect
from tunnelkit.scheduler.script_options import ScriptRequest
from tunnelkit.scheduler.slurm.adapter import Slurm
from tunnelkit.scheduler.slurm.script_options import SlurmScriptOptions
from tunnelkit.session.simulate.check import CheckHost, ToCheck, check
from tunnelkit.simulate.cluster_checks import Asked, cluster_findings
from tunnelkit.simulate.finding import from_info
from tunnelkit.simulate.script_steps import script_needs

EVIL = "\x1b]0;OWNED\x07\x1b[2J\rit is all well\n\x9b8m\u202e\ud800$(touch it-ran);`touch it-ran`"
SCRIPT = b"""#!/bin/bash
#SBATCH -o out/x.log
module load "a;touch it-ran"
conda activate "../../etc"
./run.sh
python train.py
"""
#: An answer whose every value is evil.
ROW = {"path": EVIL, "directory": f"../../{EVIL}", "is": "missing", "used": 1e300, "inodes": -1}
STEP = {"text": EVIL, "code": 1, "report": {"problem": EVIL, "python": EVIL, "errors": [EVIL] * 99}}
ANSWER: dict[str, Any] = {
    "directory": {"path": EVIL, "base": EVIL, "is": "missing"},
    "refusal": {"code": 1, "text": f"sbatch: error: {EVIL}"},
    "outputs": [ROW] * 9, "programs": [ROW, {**ROW, "path": "./run.sh", "is": "not-executable"}],
    "interpreter": ROW, "rooms": [{**ROW, "free_bytes": 10**400}, {**ROW, "free_bytes": 1e300}],
    "quota": {"text": f"{EVIL} 9* 1 1 none 9* 1 1 none\n\x1b[2J 9* 1 1 none 9* 1 1 none"},
    "steps": {"rows": [
        {**STEP, "kind": kind, "step": step}
        for kind in ("module", "avail", "into", "cd", "python", EVIL) for step in range(-1, 6)
    ]},
}  # fmt: skip


async def answered(answer: Any, home: Path) -> list[str]:
    """The lines that a person gets of an answer, through the whole check."""

    async def run(command: Command) -> Completed:
        text = answer if isinstance(answer, str) else json.dumps(answer)
        return Completed(0, f"\n{command.argv[-1]} {text}\n".encode(), b"")

    settings = load(home, overrides={"cluster.login": "login"}, environ={})
    what = ToCheck("a.sh", SCRIPT, [], home)
    found = await check(CheckHost(run, "login", Slurm(), settings), what)
    assert json.dumps(found).isascii()
    lines = list(check_lines(found, [from_info(one) for one in found["findings"]]))
    for line in lines:
        line.encode()
        assert line.isprintable() and len(line) < 5000, line
    assert len(lines) < 60
    return lines


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TK_CONFIG_DIR", str(tmp_path / "config"))
    return tmp_path


async def test_every_value_is_evil(home: Path) -> None:
    text = "\n".join(await answered(ANSWER, home))
    assert "OWNED" in text, "the person sees what it said"
    # What can be copied into a shell makes a directory of that name, and nothing else.
    hints = [line.partition("   mkdir ")[2] for line in text.splitlines() if "   mkdir " in line]
    assert hints
    for hint in hints:
        words = shlex.split(hint.removesuffix(", on the cluster"))
        assert len(words) == 2 and words[0] == "-p" and "touch it-ran" in words[1], hint
    assert text.count("chmod +x") == 1 and "chmod +x ./run.sh" in text


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.just(EVIL),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["path", "is", "rows", "step", "kind", "report", "text", "code"]), inner,
        max_size=4,
    ),
    max_leaves=6,
)  # fmt: skip


@pytest.mark.hypothesis
@given(st.dictionaries(st.sampled_from(sorted([*ANSWER, "steps-problem"])), JUNK))
def test_any_type_anywhere(answer: Any) -> None:
    asked = Asked(SlurmScriptOptions(), ScriptRequest(), script_needs(SCRIPT))
    given_back = json.loads(json.dumps({**ANSWER, **answer}))
    for one in cluster_findings(given_back, asked):
        f"{one.text}{one.hint}".encode()
        assert len(one.text) + len(one.hint) < 4000


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 50_000, "9" * 10_000, "[]", '"x"', "", "{" + " " * (5 << 20)]
)
async def test_what_is_no_answer(home: Path, text: str) -> None:
    with pytest.raises(SchedulerError) as caught:
        await answered(text, home)
    line = caught.value.one_line()
    assert "the check on login gave no answer" in line and len(line) < 500


@pytest.mark.hypothesis
@given(st.lists(st.sampled_from(
    ["tk-found", "tk-found ", "tk-found sbatch", "tk-found  ", "tk-found a b c", "tk-sbatch", EVIL,
     "tk-qstat pbs_version = ", "tk-history \x1b[2J", "tk-found qsub /x/qsub", "tk-done"]
)))  # fmt: skip
def test_the_detection_of_a_scheduler(lines: list[str]) -> None:
    text = "\n".join(lines).encode("utf-8", "replace")
    try:
        parse_detect(Completed(0, text, b""))
    except TunnelkitError as error:
        assert "did not say" in str(error)


async def test_an_answer_without_end(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "MOST_BYTES", 1 << 20)

    async def run(command: Command) -> Completed:
        return await child_process.run_child(["yes", "\x1b[2J\ris well"], what="sh on login")

    settings = load(home, overrides={"cluster.login": "login"}, environ={})
    with pytest.raises(ConnectionFailed) as caught:
        await check(CheckHost(run, "login", None, settings), ToCheck("a.sh", SCRIPT, [], home))
    assert caught.value.one_line().startswith("sh on login answered with more than 1 MB")


async def test_programs_there_that_print_without_end(home: Path) -> None:
    """Nothing fills the login host's memory, and the rest of the check is there in time."""
    for name, code in (("sbatch", 1), ("quota", 0), ("bash", 0)):
        program = home / name
        program.write_text(f"#!/bin/sh\nyes 'sbatch: error: x' | head -c 2000000000\nexit {code}")
        program.chmod(0o755)
    path = f"{home}:{Path(sys.executable).parent}:/usr/bin:/bin"
    environ = {**os.environ, "PATH": path, "HOME": str(home)}

    async def run(command: Command) -> Completed:
        argv = ["sh", "-c", 'ulimit -v 1000000; exec "$@"', "sh", *command.argv]
        done = await asyncio.to_thread(
            subprocess.run, argv, input=command.stdin, capture_output=True, env=environ
        )
        return Completed(done.returncode, done.stdout, done.stderr)

    settings = load(home, overrides={"cluster.login": "login"}, environ={})
    begun_s = time.monotonic()
    found = await check(
        CheckHost(run, "login", Slurm(bin_dirs={"sbatch": str(home)}), settings),
        ToCheck("a.sh", SCRIPT, [], home),
    )
    assert time.monotonic() - begun_s < 8.0
    texts = {one["check"]: one["text"] for one in found["findings"] if one["level"] == "unknown"}
    assert texts["refusal"] == "slurm could not be asked: it printed more than 200 kB"
    assert texts["modules"].endswith("not looked at: it printed more than 1048 kB")
    assert not [one for one in found["findings"] if one["check"] == "quota"]


async def test_on_a_terminal(project: Project, programs: Programs) -> None:
    """A real login host whose Python answers what it likes."""
    python = programs.directory / "python3"
    answer = programs.directory / "answer"
    answer.write_text(json.dumps(ANSWER))
    real = shlex.quote(shutil.which("python3") or sys.executable)
    python.write_text(
        f"#!/bin/sh\n[ $# != 4 ] || exec echo {shlex.quote(str(python))}\n"
        f'[ "$3" = -c ] && [ $# = 6 ] || exec {real} "$@"\n'
        f'cat >/dev/null\nprintf \'\\033[2J\\n%s %s\\n\' "$6" "$(cat {answer})"\n'
    )
    python.chmod(0o755)
    (project.dir / "a.sh").write_bytes(SCRIPT)
    async with on_a_terminal(project, "simulate", "--only-check", "a.sh") as screen:
        assert await screen.ended() == ExitCode.CHECK_FAILED, screen.raw
    assert "OWNED" in screen.raw
    for obeyed in ("\x1b]", "\x1b[2J", "\x1b[8m", "\x07", "\x9b", "\u202e"):
        assert obeyed not in screen.raw
    assert not list(project.base.rglob("it-ran"))
