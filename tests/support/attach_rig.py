"""Can a debugger come into a program that runs already, on this machine?"""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from tunnelkit.agent.debug.injection import find_hindrance


def check_attach() -> None:
    """Skip unless gdb attaches to a process that is no child of it, as it must on a node."""
    if sys.version_info < (3, 14) and shutil.which("gdb") is None:
        pytest.skip("gdb is not installed, and before Python 3.14 nothing attaches without")
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        if find_hindrance(sleeper.pid, sys.executable) is not None:
            pytest.skip("this machine lets no process look into another (Yama)")
        if shutil.which("gdb"):
            tried = subprocess.run(
                ["gdb", "--batch", "--nx", "--pid", str(sleeper.pid), "-ex", "detach"],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            if "ptrace: " in tried.stderr:
                pytest.skip("ptrace is forbidden here, in a container without SYS_PTRACE for one")
    finally:
        sleeper.kill()
        sleeper.wait()
