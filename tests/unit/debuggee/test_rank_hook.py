"""What the hook decides, seen at the moment where the process would be replaced."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tunnelkit.debuggee import debugpy_launcher, rank_hook

SITE = "/opt/agent.zip/tunnelkit/debuggee/site"
RANK = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}


class Replaced(BaseException):
    """In place of the new program; no Exception, as execve does not return."""


@dataclass
class Process:
    """The process that the hook believes to be in."""

    monkeypatch: pytest.MonkeyPatch
    directory: Path
    installed: list[tuple[object, ...]]
    argv: list[str] | None = None
    environ: dict[str, str] | None = None

    @property
    def dialin(self) -> str:
        return str(self.directory / "loop.1")

    def arrive(self, line: str, environ: dict[str, str], **contract: object) -> bool:
        """True if the process was replaced: see argv and environ."""
        given = {"dialin": self.dialin, **contract}
        for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "SLURM_PROCID"):
            self.monkeypatch.delenv(name, raising=False)
        for name, value in {
            "SLURMD_NODENAME": "n1",
            "PYTHONPATH": f"{SITE}:/my/own",
            "TK_RANKS": json.dumps(given),
            **environ,
        }.items():
            self.monkeypatch.setenv(name, value)
        self.monkeypatch.setattr(sys, "orig_argv", ["python", *shlex.split(line)])
        self.monkeypatch.setattr(sys, "path", [SITE, *sys.path])
        try:
            rank_hook.install(SITE)
        except Replaced:
            return True
        return False


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Process]:
    tmp_path.chmod(0o700)
    file = tmp_path / "loop.1.n1.port"
    file.write_text("4711")
    file.chmod(0o600)
    installed: list[tuple[object, ...]] = []
    found = Process(monkeypatch, tmp_path, installed)

    def execve(path: str, argv: list[str], environ: dict[str, str]) -> None:
        assert path == argv[0] == sys.executable
        found.argv, found.environ = argv[1:], environ
        raise Replaced

    monkeypatch.setattr(os, "execve", execve)
    for name in ("install", "install_in_launcher"):
        monkeypatch.setattr(
            rank_hook.torch_timeouts,
            name,
            lambda *given, name=name: installed.append((name, *given)),
        )
    yield found
    os.environ.pop(rank_hook.DECIDED, None)


ROOT = str(Path(debugpy_launcher.__file__).parents[2])
UNDER_DEBUGPY = [
    "-c",
    debugpy_launcher.START,
    ROOT,
    "--connect",
    "127.0.0.1:4711",
    "--wait-for-client",
]


def test_a_rank_goes_under_the_debugger(process: Process) -> None:
    assert process.arrive("-u -Xdev train.py --lr 1", RANK)
    assert process.argv == ["-u", "-Xdev", *UNDER_DEBUGPY, "train.py", "--lr", "1"]
    assert process.environ is not None
    assert process.environ[rank_hook.DECIDED] == str(os.getpid())
    assert process.environ["PYTHONPATH"].startswith(SITE)


@pytest.mark.parametrize("target", ["-m pkg.train x", "-c 'x = 1'", "tool/main.py"])
def test_targets_of_all_kinds(process: Process, target: str) -> None:
    assert process.arrive(target, RANK)
    assert process.argv == [*UNDER_DEBUGPY, *shlex.split(target)]


def test_a_debugger_of_its_own_is_taken_off(process: Process) -> None:
    extra = {"DEBUGPY_EXTRA_ARGV": "--connect 127.0.0.1:1 --wait-for-client --log-to /tmp/x"}
    line = "-m debugpy --listen 5678 --wait-for-client --log-to-stderr -m pkg"
    assert process.arrive(line, {**RANK, **extra, "DEBUGPY_RUNNING": "true"})
    assert process.argv == [*UNDER_DEBUGPY, "--log-to-stderr", "--log-to", "/tmp/x", "-m", "pkg"]
    assert process.environ is not None
    assert not {"DEBUGPY_EXTRA_ARGV", "DEBUGPY_RUNNING"} & process.environ.keys()


def test_after_its_start_the_hook_is_gone(process: Process) -> None:
    environ = {**RANK, rank_hook.DECIDED: str(os.getpid())}
    assert not process.arrive("-c START train.py", environ, collectives="keep")
    assert os.environ["PYTHONPATH"] == "/my/own"
    assert SITE not in sys.path
    assert rank_hook.DECIDED not in os.environ
    assert process.installed == [("install", True, 1)]


def test_a_decision_holds_for_one_process_only(process: Process) -> None:
    assert process.arrive("train.py", {**RANK, rank_hook.DECIDED: "1"})


def test_an_unwanted_rank_runs_free(process: Process) -> None:
    assert not process.arrive("train.py", {**RANK, "DEBUGPY_EXTRA_ARGV": "--x"}, only=[0])
    assert os.environ["PYTHONPATH"] == "/my/own"
    assert "DEBUGPY_EXTRA_ARGV" not in os.environ
    assert process.installed == [("install", False, 1)]


def test_an_unwanted_rank_waits_for_no_editor(process: Process) -> None:
    line = "-u -m debugpy --listen 5678 --wait-for-client train.py"
    assert process.arrive(line, RANK, only=[0])
    assert process.argv == ["-u", "train.py"]


@pytest.mark.parametrize("trouble", ["no file", "no debugpy", "open to others"])
def test_where_it_can_not_be_debugged_it_runs_free(
    process: Process, trouble: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if trouble == "no file":
        (process.directory / "loop.1.n1.port").unlink()
    elif trouble == "no debugpy":
        process.monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    else:
        process.directory.chmod(0o755)
    assert not process.arrive("train.py", RANK)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("tk: rank 1 runs free, not debugged: ")
    assert process.installed == [("install", False, 1)]


@pytest.mark.parametrize("environ", [{}, RANK, {"SLURM_PROCID": "0", "SLURM_STEP_ID": "3"}])
def test_launchers_pass_with_the_hook(process: Process, environ: dict[str, str]) -> None:
    assert not process.arrive("/venv/bin/torchrun --nproc-per-node 2 train.py", environ)
    assert os.environ["PYTHONPATH"].startswith(SITE)
    assert process.installed == [("install_in_launcher", False)]


def test_a_launcher_under_a_debugger_runs_without(process: Process) -> None:
    line = "-m debugpy --listen 5678 -m torch.distributed.run train.py"
    assert process.arrive(line, {})
    assert process.argv == ["-m", "torch.distributed.run", "train.py"]


@pytest.mark.parametrize(
    "line",
    [
        "-m pip list",
        "-c 'from multiprocessing.resource_tracker import main;main(5)'",
        "-m debugpy --listen 5678 --pid 7",
    ],
)
def test_helpers_pass_with_the_hook(process: Process, line: str) -> None:
    assert not process.arrive(line, RANK)
    assert os.environ["PYTHONPATH"].startswith(SITE)
    assert process.installed == []


@pytest.mark.parametrize("line", ["prepare.py", "-m debugpy --listen 1 train.py", "", "-"])
def test_what_is_no_rank_passes_with_the_hook(process: Process, line: str) -> None:
    assert not process.arrive(line, {})
    assert os.environ["PYTHONPATH"].startswith(SITE)
    assert process.installed == [("install", False, None)]


@pytest.mark.parametrize(
    "line", ["-c 'import sys; import pydevd; pydevd.settrace()'", "/x/pydevd.py --file a.py"]
)
def test_children_that_a_debugger_took_along(process: Process, line: str) -> None:
    assert not process.arrive(line, RANK)
    assert os.environ["PYTHONPATH"] == "/my/own"


def test_a_spawned_worker_with_a_rank_of_its_own_counts(process: Process) -> None:
    code = "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5, pipe_handle=7)"
    assert process.arrive(f"-c '{code}' --multiprocessing-fork", RANK)
    assert process.argv == [*UNDER_DEBUGPY, "-c", code, "--multiprocessing-fork"]


def test_the_last_entry_takes_the_variable_along(process: Process) -> None:
    environ = {**RANK, "PYTHONPATH": SITE + "/"}
    assert not process.arrive("train.py", environ, only=[])
    assert "PYTHONPATH" not in os.environ


def test_before_python_3_10(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/proc/self/cmdline", "rb") as file:
        words = [word.decode() for word in file.read().split(b"\0")[:-1]]
    monkeypatch.delattr(sys, "orig_argv")
    assert rank_hook._own_words() == words
