"""What a Python process was started to do."""

from __future__ import annotations

import shlex
import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tunnelkit.debuggee.python_command import (
    Program,
    is_helper,
    is_launcher,
    is_under_debugger,
    kept_switches,
    parse,
    without_debugger,
)


def of(line: str) -> Program:
    program = parse(shlex.split(line))
    assert program is not None
    return program


@pytest.mark.parametrize(
    ("line", "switches", "words"),
    [
        ("train.py --lr 1 -m x", "", "train.py --lr 1 -m x"),
        ("-u -O train.py", "-u -O", "train.py"),
        ("-uBOO train.py", "-uBOO", "train.py"),
        ("-m pkg.train -u", "", "-m pkg.train -u"),
        ("-um pkg a", "-u", "-m pkg a"),
        ("-mpkg a", "", "-m pkg a"),
        ("-c 'x = 1' a", "", "-c 'x = 1' a"),
        ("-uc'x = 1'", "-u", "-c 'x = 1'"),
        ("-W ignore -X dev -Xfaulthandler a.py", "-Wignore -Xdev -Xfaulthandler", "a.py"),
        ("-uWignore a.py", "-u -Wignore", "a.py"),
        ("--check-hash-based-pycs never a.py", "--check-hash-based-pycs never", "a.py"),
        ("-u -- a.py", "-u", "a.py"),
        ("-u -- -B x", "-u", "./-B x"),
    ],
)
def test_switches_and_target(line: str, switches: str, words: str) -> None:
    program = of(line)
    assert list(program.switches) == shlex.split(switches)
    assert program.words() == shlex.split(words)


@pytest.mark.parametrize("line", ["", "-u", "-", "-i", "--version", "-V", "-", "-W", "-m", "--"])
def test_no_program(line: str) -> None:
    assert parse(shlex.split(line)) is None


@given(st.lists(st.text(alphabet="-cmWXuB x.", max_size=4), max_size=6))
@example(["--", "-B"])
def test_any_words_are_survived(words: list[str]) -> None:
    program = parse(words)
    if program is not None:
        # What we make of it reads the same again.
        assert parse([*program.switches, *program.words()]) == program or "" in words
        without_debugger(program)


def test_the_interpreter_agrees() -> None:
    code = "import sys, json; print(json.dumps([sys.argv, sys.flags.optimize, sys.warnoptions]))"
    for words in (["-OWerror", "-c", code, "-u"], ["-OWerror", "-c" + code, "-u"]):
        program = parse(words)
        assert program is not None
        again = [*program.switches, *program.words()]
        outputs = [
            subprocess.run([sys.executable, *each], capture_output=True, check=True).stdout
            for each in (words, again)
        ]
        assert outputs[0] == outputs[1]


@pytest.mark.parametrize(
    ("line", "target", "kept"),
    [
        ("-m debugpy --listen 5678 --wait-for-client a.py x", "a.py x", ""),
        ("-u -m debugpy --listen 0.0.0.0:5678 -m pkg x", "-m pkg x", ""),
        ("-m debugpy --connect 1 --log-to /tmp/x -c 'y = 1'", "-c 'y = 1'", "--log-to /tmp/x"),
        ("-m debugpy --configure-subProcess false --listen 1 a.py", "a.py",
         "--configure-subProcess false"),
        ("-m debugpy --listen 1 --adapter-access-token T a.py", "a.py", ""),
        ("/venv/bin/debugpy --listen 1 a.py", "a.py", ""),
        ("-m ptvsd --host 0.0.0.0 --port 5678 --wait a.py x", "a.py x", ""),
        ("a.py -m debugpy b.py", "a.py -m debugpy b.py", ""),
    ],
)  # fmt: skip
def test_what_a_debugger_was_to_run(line: str, target: str, kept: str) -> None:
    program, switches = without_debugger(of(line))
    assert program is not None
    assert program.words() == shlex.split(target)
    assert switches == shlex.split(kept)
    assert program.switches == of(line).switches


@pytest.mark.parametrize(
    "line", ["-m debugpy --listen 1", "-m debugpy --listen 1 --pid 7", "-m debugpy --listen 1 -m"]
)
def test_a_debugger_without_a_program(line: str) -> None:
    assert without_debugger(of(line))[0] is None


def test_extra_switches() -> None:
    words = ["--connect", "127.0.0.1:1", "--wait-for-client", "--log-to", "/x", "--log-to-stderr"]
    assert kept_switches(words) == ["--log-to", "/x", "--log-to-stderr"]
    assert kept_switches(words, but=["--log-to"]) == ["--log-to-stderr"]


@pytest.mark.parametrize(
    "line",
    [
        "/venv/bin/torchrun --nproc-per-node 4 train.py",
        "/usr/bin/torchrun3.11 train.py",
        "-m torch.distributed.run train.py",
        "-u -m torch.distributed.launch --use_env train.py",
        "/venv/lib/python3.11/site-packages/torch/distributed/run.py train.py",
        "/venv/bin/accelerate launch train.py",
        "/venv/bin/accelerate-launch train.py",
        "/usr/bin/mpirun.openmpi -n 4 ./a.out",
        "/usr/bin/mpiexec.mpich -n 4 ./a.out",
        "-m accelerate.commands.launch train.py",
        "/venv/bin/deepspeed train.py",
        "-u -m deepspeed.launcher.launch --world_info=x train.py",
        "/venv/bin/horovodrun -np 4 python train.py",
        "-m horovod.runner.run_task x",
        "/opt/site/bin/mpirun -n 4 python train.py",
    ],
)
def test_launchers(line: str) -> None:
    assert is_launcher(of(line)) and not is_helper(of(line))


SPAWNED = "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5, pipe_handle=7)"


@pytest.mark.parametrize(
    "line",
    [
        "train.py",
        "run.py",
        "-m pkg.run",
        "-m mpi4py train.py",
        "torchrun.py",
        f"-c '{SPAWNED}' --multiprocessing-fork",
        "-c 'import torch.distributed.run'",
        "-m pipeline",
    ],
)
def test_programs(line: str) -> None:
    program = of(line)
    assert not (is_launcher(program) or is_helper(program) or is_under_debugger(program))


@pytest.mark.parametrize(
    "line",
    [
        "-m pip install x",
        "/venv/bin/pip3.11 list",
        "-c 'from multiprocessing.resource_tracker import main;main(5)'",
        "-c 'from multiprocessing.forkserver import main; main(5, 6, [], **{})'",
        "-m debugpy.adapter --for-server 1",
    ],
)
def test_helpers(line: str) -> None:
    assert is_helper(of(line))


@pytest.mark.parametrize(
    "line",
    [
        "-c 'import sys; sys.path.insert(0, r\"/x\"); import pydevd; pydevd.settrace()'",
        "/venv/debugpy/_vendored/pydevd/pydevd.py --multiprocess --file a.py",
    ],
)
def test_children_of_a_debugger(line: str) -> None:
    assert is_under_debugger(of(line))
