"""What a process costs, by the kernel's own account."""

from __future__ import annotations

import os
import subprocess
import sys

from tunnelkit.agent.processes.memory import memory_of

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
