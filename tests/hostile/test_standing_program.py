"""Another user of the node tries to reach a program that stands at its exception, and its files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.other_user import OtherUser, why_no_other_user
from tests.support.processes import until
from tunnelkit.agent.debug.standing import NAME
from tunnelkit.keeper.kept_files import KeptFiles
from tunnelkit.session.submit.job_body import hook_files

pytestmark = pytest.mark.skipif(bool(why_no_other_user()), reason=str(why_no_other_user()))
#: Each is tried, and what came of it is told.
TRIES = """
import json, os, sys
order = json.load(sys.stdin)
base, pid = order["directory"], order["pid"]
def tried(what):
    try:
        return repr(what())
    except OSError as error:
        return type(error).__name__
def put(path):
    with open(path, "w") as file:
        file.write('{"go": true, "agent": "/tmp", "port": 1}')
print(json.dumps([
    tried(lambda: os.listdir(base)),
    tried(lambda: put(base + "/answer.json")),
    tried(lambda: put(base + "/sitecustomize.py")),
    tried(lambda: os.listdir("/proc/%d/fd" % pid)),
    *(tried(lambda: put("/proc/%d/fd/%d" % (pid, one))) for one in order["files"]),
    tried(lambda: os.kill(pid, 15)),
]))
"""


def test_he_can_neither_ask_it_nor_let_it_go(other_user: OtherUser, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    files = KeptFiles(str(tmp_path), "7").standing()
    assert files.put(hook_files())
    environ = {**os.environ, "PYTHONPATH": files.directory}
    process = subprocess.Popen([sys.executable, "-c", "1 / 0"], env=environ, stderr=subprocess.PIPE)
    try:
        until(lambda: files.look(), "the program stands")
        where = Path(f"/proc/{process.pid}/fd")
        taking = [int(one.name) for one in where.iterdir() if NAME in os.readlink(one)]
        assert taking
        order = {"directory": files.directory, "pid": process.pid, "files": taking}
        assert set(other_user.ask(TRIES, order)) == {"PermissionError"}
        assert files.look() and process.poll() is None
    finally:
        process.kill()
        process.communicate()
