"""scripts/leftovers: what an interrupted run leaves is ended, with what that leaves in turn."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_SCRIPT = Path(__file__).parents[2] / "scripts" / "leftovers"
#: A marked process with a child that has the title and the empty environment of an sshd.
_TREE = """
import subprocess, sys
child = subprocess.Popen(["bash", "-c", 'exec -a "$0" sleep 60', sys.argv[1]], env={})
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
