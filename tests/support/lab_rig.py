"""What the tests of the lab itself share."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lab_fixtures import why_no_lab
from tunnelkit.lab import LabInfo
from tunnelkit.lab.layout import Layout
from tunnelkit.lab.processes import ProcessId, lab_processes
from tunnelkit.lab.state import load

needs_lab = pytest.mark.skipif(bool(why_no_lab()), reason=str(why_no_lab()))


def until(condition: Callable[[], object], deadline_s: float = 20.0) -> None:
    ends = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < ends, "never came true"
        time.sleep(0.02)


def processes_of(info: LabInfo) -> set[ProcessId]:
    state = load(Layout(info.dir))
    assert state
    return lab_processes(str(info.dir), state.processes)


def name_of(process: ProcessId) -> str:
    try:
        return Path(f"/proc/{process.pid}/comm").read_text().strip()
    except OSError:
        return ""


def say_to(process: subprocess.Popen[bytes], data: bytes) -> None:
    assert process.stdin
    process.stdin.write(data)
    process.stdin.flush()
