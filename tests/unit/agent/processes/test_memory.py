"""What a process costs, by the kernel's own account."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tunnelkit.agent.processes.memory import memory_of, oom_kills

MIB = 2**20
#: 64 MiB of its own, and a child that shares them.
_CODE = """\
import os, sys
block = b"x" * (64 << 20)
child = os.fork()
if child:
    print(child, flush=True)
sys.stdin.read()
"""


def test_what_is_shared_counts_in_parts() -> None:
    with subprocess.Popen(
        [sys.executable, "-S", "-c", _CODE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        child = int(process.stdout.readline())
        try:
            for pid in (process.pid, child):
                found = memory_of(pid)
                assert 64 * MIB < found["rss_bytes"] < 200 * MIB
                # Half of the block each, and what else they share.
                assert 32 * MIB <= found["share_bytes"] < 64 * MIB
        finally:
            process.stdin.close()


def test_a_process_that_is_gone_costs_nothing() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    assert memory_of(pid) == {}


@pytest.mark.parametrize(
    ("groups", "file", "text"),
    [
        ("0::/job_7/step_0", "job_7/step_0/memory.events", "low 0\noom 3\noom_kill 2\n"),
        ("0::/", "memory.events", "oom_kill 2\n"),
        ("0::/kubepods/pod1/c1", "memory.events", "oom_kill 2\n"),
        ("5:cpu:/x\n4:memory:/slurm/7", "memory/slurm/7/memory.oom_control", "oom_kill 2\n"),
        ("4:cpu,memory:/kubepods/c1", "memory/memory.oom_control", "under_oom 0\noom_kill 2\n"),
    ],
    ids=["v2", "v2-own", "v2-container", "v1", "v1-container"],
)
def test_kills_for_memory_are_counted(tmp_path: Path, groups: str, file: str, text: str) -> None:
    proc, mount = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text(groups + "\n")
    (mount / file).parent.mkdir(parents=True)
    assert oom_kills(str(proc), str(mount)) is None
    (mount / file).write_text(text)
    assert oom_kills(str(proc), str(mount)) == 2
    (mount / file).write_text("oom_kill many\n")
    assert oom_kills(str(proc), str(mount)) is None


def test_no_cgroups_no_count(tmp_path: Path) -> None:
    assert oom_kills(str(tmp_path), str(tmp_path)) is None
