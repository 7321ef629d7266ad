"""scripts/leftovers: what an interrupted run leaves is ended, with what that leaves in turn."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

_SCRIPT = Path(__file__).parents[2] / "scripts" / "leftovers"
#: A marked process with a child that has the title and the empty environment of an sshd.
_TREE = """
import subprocess, sys, time
child = subprocess.Popen(["bash", "-c", 'exec -a "$0" sleep 60', sys.argv[1]], env={})
while not open(f"/proc/{child.pid}/cmdline").read().startswith("sshd: "):
    time.sleep(0.01)  # bash still has its own title
print(child.pid, flush=True)
child.wait()
"""

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="it reads Linux's /proc"
)


def _script(*words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, str(_SCRIPT), *words]
    env = {**os.environ, "LEFTOVERS_GRACE_S": "2"}
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    "title", ["sshd: /usr/sbin/sshd -D -f {mark}/sshd_login [listener] 0 of 10", "sshd: ann@notty"]
)
def test_a_daemon_that_shows_only_its_title_is_ended_with_its_parent(
    tmp_path: Path, title: str
) -> None:
    mark = f"/tktest{os.getpid()}"
    before = tmp_path / "before"
    before.write_text(_script("snapshot").stdout)
    parent = subprocess.Popen(
        [sys.executable, "-c", _TREE, title.format(mark=mark)],
        env={"TK_TEST_LEFT": mark, "PATH": os.environ["PATH"]},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    done = _script("compare", str(before), f"TK_TEST_LEFT={mark}", mark)
    assert done.returncode == 1 and f"  {parent.pid}  " in done.stderr, done
    assert parent.wait() == -9
    assert f"  {child}  sshd: " in done.stderr, done
    again = _script("compare", str(before), f"TK_TEST_LEFT={mark}", mark)
    assert again.stdout == "no process is left\n"


def _loaded() -> ModuleType:
    loader = SourceFileLoader("leftovers", str(_SCRIPT))
    spec = spec_from_loader("leftovers", loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.mark.parametrize("looks", range(1, 8))
def test_a_child_whose_parent_takes_long_to_end_is_ended_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    script = _loaded()
    before = tmp_path / "before"
    before.write_text("")
    killed: list[tuple[int, int]] = []
    looks_since_kill = 0

    def processes() -> dict[str, int]:
        """Process 7 with its child 8; once killed, 7 is still there for a while."""
        nonlocal looks_since_kill
        looks_since_kill += bool(killed)
        if (8, signal.SIGKILL) in killed:
            return {}
        return {"7:1": 5, "8:2": 7} if looks_since_kill < looks else {"8:2": 1}

    def is_left(pid: str, parent: int, marks: list[bytes]) -> bool:
        return (pid == "7" and not killed) or (pid == "8" and parent == 1)

    monkeypatch.setattr(script, "processes", processes)
    monkeypatch.setattr(script, "is_left", is_left)
    monkeypatch.setattr(script, "GRACE_S", 2.0)
    monkeypatch.setattr(script.time, "sleep", lambda _: None)
    monkeypatch.setattr(script.os, "kill", lambda *how: killed.append(how))
    assert script.compare(str(before), ["mark"]) == 1
    assert killed == [(7, signal.SIGKILL), (8, signal.SIGKILL)]
