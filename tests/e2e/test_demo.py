"""`tk demo`, as a newcomer runs it: it tells the whole story, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.lab_fixtures import why_no_lab
from tests.support.kube_rig import kubectl
from tests.support.processes import look
from tunnelkit.lab.programs import SLURM_PROGRAMS, missing

_DEADLINE_S = 170
#: The chapters of the ranks and of the batch job, which need Slurm.
RANKS = (
    "$ tk loop srun -n 4 --overcommit python ranks.py",
    "$ tk console -c c",
    "0-3 begins",
    "$ tk ranks",
    "A  0-1,3  3  ranks.py:",
    "B  2      1  ranks.py:",
    "B  rank 2 · node1",
    "$ tk console 2 -c pause -c 'p path'",
    "path = 'shard2.txt'",
    "write shard2.txt; $ tk console 2 -c c",
    "the 4 ranks met, exit code 0",
    "$ tk submit night.sh",
    "$ tk why 2",
    "job 2 failed, most likely: Slurm killed it for memory: it used ",
    "its limit is 150 MB",
)
_TK = [sys.executable, "-P", "-c", "from tunnelkit.cli.main import main; main()"]


@dataclass(frozen=True)
class Stage:
    """Where one demo plays: `tmp` is its TMPDIR, `bin` comes first in its PATH, `home` is that
    of its user."""

    tmp: Path
    bin: Path
    home: Path

    def environ(self) -> dict[str, str]:
        path = f"{self.bin}:{os.environ['PATH']}"
        # A user's own settings; the demo must not even look at them.
        own = {"TK_PROFILE": "nowhere", "TK_CLUSTER_LOGIN": "nowhere.invalid"}
        kept = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
        return {**kept, **own, "HOME": str(self.home), "TMPDIR": str(self.tmp), "PATH": path}

    def run(self, *flags: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*_TK, "demo", *flags],
            env=self.environ(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_DEADLINE_S,
            check=False,
        )

    def break_program(self, name: str, when: str) -> None:
        """Put a stand-in before the real program that fails when its words match a pattern."""
        path, real = self.bin / name, shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")
        path.write_text(
            f"#!/bin/sh\ncase $* in {when}) echo '{name}: no luck today' >&2; exit 12 ;; esac\n"
            f'exec {real} "$@"\n'
        )
        path.chmod(0o755)

    def left(self) -> list[str]:
        """Files of the demo, the home's too, and processes that name its directory."""
        mark = f"{self.tmp}/tkdemo-"
        processes = [
            str(one)
            for one in look().values()
            if any(mark in word for word in (*one.argv, *one.environ))
        ]
        return [*map(str, (*self.tmp.iterdir(), *self.home.rglob("*"))), *processes]


@pytest.fixture
def stage() -> Iterator[Stage]:
    if reason := why_no_lab():
        pytest.skip(reason)
    # Not below tmp_path, whose length leaves no room for Unix sockets.
    base = Path(tempfile.mkdtemp(prefix="tkt", dir="/tmp"))
    found = Stage(base / "t", base / "bin", base / "home")
    for place in (found.tmp, found.bin, found.home):
        place.mkdir()
    try:
        yield found
    finally:
        shutil.rmtree(base)


def test_tells_the_whole_story(stage: Stage) -> None:
    done = stage.run()
    assert done.returncode == 0, done.stdout + done.stderr
    slurm = not missing(SLURM_PROGRAMS)
    lines = [
        "$ tk lab up",
        "$ tk up node1 --gpus 1 --cpus 2",
        "$ tk loop python -m debugpy --wait-for-client train.py",
        "Run 1 stopped at the breakpoint",
        "SLURM_JOB_ID=1, CUDA_VISIBLE_DEVICES=0" if slurm else "The program says: node node1",
        "loss = 3.4, and it was 2.67: it grows",
        "value + RATE * slope  ->  value - RATE * slope",
        "Run 2 stopped at the breakpoint",
        "loss = 2.04, down from 2.67",
        "$ kill -9 ",
        "The session says: reconnecting",
        "The session says: ready",
        "epoch = 1, still process",
        "train.py ended with exit code 0",
        "y = 1.94x + 1.00",
        *(RANKS if slurm else ()),
        "$ tk down",
        "squeue shows no job 1" if slurm else "its agent has ended",
        "$ tk lab down",
        "nothing is left of it",
        "tk init --login",
    ]
    rest = done.stdout
    for line in lines:
        _, found, rest = rest.partition(line)
        assert found, f"{line!r} is missing (or too early) in:\n{done.stdout}"
    assert len(done.stdout.splitlines()) <= 68
    assert "\x1b" not in done.stdout, "colours belong on a terminal only"
    assert not done.stderr
    assert not stage.left()


@pytest.mark.slow
def test_without_a_scheduler_it_says_so_and_plays_on(stage: Stage) -> None:
    done = stage.run("--scheduler", "none")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no Slurm" in done.stdout
    assert "without a scheduler there is no job" in done.stdout
    assert "loss = 2.04, down from 2.67" in done.stdout
    assert "srun" not in done.stdout and "tk ranks" not in done.stdout
    assert not stage.left()


def test_in_a_pod(stage: Stage) -> None:
    kubectl()
    done = stage.run("--kube")
    assert done.returncode == 0, done.stdout + done.stderr
    rest = done.stdout
    for line in (
        "$ tk lab up --kube",
        "$ tk init --kube",
        "$ tk up ml-dev-env",
        "pod/ml-dev-env: no port-forward, no sshd",
        "The program says: pod ml-dev-env, in /home/tk/fit",
        "loss = 2.04, down from 2.67",
        "every kubectl between here and ml-dev-env",
        "The session says: ready",
        "train.py ended with exit code 0",
        "ml-dev-env goes on",
        "nothing is left of it",
    ):
        _, found, rest = rest.partition(line)
        assert found, f"{line!r} is missing (or too early) in:\n{done.stdout}"
    assert not done.stderr
    assert not stage.left()
    # The picture of docs/kubernetes.md (`scripts/docs pictures`).
    if folder := os.environ.get("TK_SCREENSHOTS"):
        from scripts.docslib.pictures import terminal

        shown = re.sub(r"/\S*(/tkdemo-)\w+", r"/tmp\1x", done.stdout)
        terminal(f"$ tk demo --kube\n{shown}", Path(folder) / "kube-demo.svg")


@pytest.mark.slow
def test_the_labs_pods_stay_until_it_is_taken_down(stage: Stage) -> None:
    def lab(*words: str) -> str:
        argv = [*_TK, "lab", *words]
        env = {**stage.environ(), "TK_LAB_DIR": str(stage.tmp / "lab")}
        return subprocess.run(argv, env=env, capture_output=True, text=True, check=True).stdout

    kubeconfig = stage.tmp / "lab-kube" / "kubeconfig"
    assert "ml-dev-env" in lab("up", "--kube") and str(kubeconfig) in lab("env", "--kube")
    assert "Running    train-0" in lab("status", "--kube")
    before = kubeconfig.read_bytes()
    lab("up", "--kube")
    assert kubeconfig.read_bytes() == before  # the one that is there serves on
    lab("down")
    lab("down")
    assert not list(stage.tmp.iterdir())
    mark = str(stage.tmp)
    assert not [one for one in look().values() if any(mark in word for word in one.environ)]


@pytest.mark.parametrize(
    ("program", "when", "step", "code"),
    [("sshd", "*", "$ tk lab up", 5), ("ssh", "*-M*-N*", "$ tk up node1", 5)],
)
def test_a_step_that_fails_is_named_explained_and_cleaned_up(
    stage: Stage, program: str, when: str, step: str, code: int
) -> None:
    stage.break_program(program, when)
    done = stage.run()
    assert done.returncode == code, done.stdout + done.stderr
    assert f"FAILED at: {step}" in done.stdout
    assert f"{program}: no luck today" in done.stdout
    assert "cleaned up" in done.stdout
    assert not done.stderr
    assert not stage.left()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "step", "code"),
    [
        (signal.SIGINT, "$ tk lab up", 130),
        (signal.SIGINT, "$ tk up", 130),
        (signal.SIGINT, "F10", 130),
        (signal.SIGTERM, "$ tk loop", 143),
    ],
)
def test_an_interrupt_cleans_up(stage: Stage, number: int, step: str, code: int) -> None:
    """A terminal's Ctrl-C reaches the whole process group, and people press it again and again:
    each program that cleans up may be met by one in the moment of its start."""
    demo = subprocess.Popen(
        [*_TK, "demo"],
        env=stage.environ(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        assert demo.stdout is not None
        seen = ""
        for line in demo.stdout:
            seen += line
            if line.startswith(step):
                os.killpg(demo.pid, number)
            elif line.startswith("interrupted"):
                for _ in range(500):
                    os.killpg(demo.pid, number)
                    time.sleep(0.001)
        assert demo.wait(_DEADLINE_S) == code, seen
        assert "cleaned up" in seen
        assert not stage.left()
    finally:
        demo.kill()
        demo.wait()


def test_a_reader_who_goes_away_leaves_nothing(stage: Stage) -> None:
    demo = subprocess.Popen(
        [*_TK, "demo"],
        env=stage.environ(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert demo.stdout is not None
        assert demo.stdout.readline()
        demo.stdout.close()
        assert demo.stderr is not None
        assert not demo.stderr.read()
        demo.wait(_DEADLINE_S)
        assert not stage.left()
    finally:
        demo.kill()
        demo.wait()


@pytest.mark.slow
def test_two_at_once_are_in_nobodys_way(stage: Stage) -> None:
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda _: stage.run(), range(2)))
    assert [done.returncode for done in both] == [0, 0], both
    assert not stage.left()


@pytest.mark.slow
def test_keep_hands_over_what_can_be_typed(stage: Stage) -> None:
    done = stage.run("--keep")
    assert done.returncode == 0, done.stdout + done.stderr
    before, _, after = done.stdout.partition("To end all of it, in the same shell:\n")
    shell = [line.strip() for line in before.splitlines() if line.startswith(("  export", "  cd"))]
    played = _bash([*shell, "tk status", "tk run sh -c 'echo on $TK_LAB_HOST'"])
    ended = _bash([*shell, after.strip()])
    assert "session  ready" in played
    assert "on node1" in played
    assert "down" in ended
    assert not stage.left()


def _bash(lines: list[str]) -> str:
    done = subprocess.run(
        ["bash", "-c", "\n".join(["set -eu", *lines])],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
