"""Processes are ended whole: group, children that ignore TERM, daemons that fled the group."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

#: Runs in a process of its own: a ProcessTable takes over SIGCHLD and reaps everything.
_DRIVER = """
import asyncio, json, os, subprocess, sys, time
from tunnelkit.agent.processes.table import ProcessTable

async def main():
    table = ProcessTable()
    table.start()
    null = os.open(os.devnull, os.O_RDWR)
    process = table.spawn(
        [sys.executable, "-c", sys.argv[1], sys.argv[2]],
        cwd="/", env=dict(os.environ), stdin=null, stdout=null, stderr=null)
    pids = []
    if sys.argv[3] == "kill":
        while len(pids) < 3:
            await asyncio.sleep(0.02)
            try:
                pids = [int(line) for line in open(sys.argv[2]).read().split()]
            except (OSError, ValueError):
                pids = []
        how = await table.end(process, 0.5)
    else:
        how = await process.exited
    print(json.dumps({"how": how.describe(), "pids": pids, "zombies": zombies()}))

def zombies():
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = open(f"/proc/{entry}/stat").read().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if fields[0] == "Z" and int(fields[1]) == os.getpid():
                found.append(int(entry))
    return found

asyncio.run(main())
"""

_FAMILY = """
import os, signal, subprocess, sys, time
out = open(sys.argv[1], "a")
def tell():
    out.write(f"{os.getpid()}\\n"); out.flush()
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    tell()
    while True: time.sleep(60)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        tell()
        while True: time.sleep(60)
    os._exit(0)
tell()
while True: time.sleep(60)
"""


def drive(program: str, tmp_path: Path, what: str, *, group: Path | None = None) -> dict[str, Any]:
    """Run the program in a table of its own, in that cgroup if one is given."""
    join = f"open({str(group / 'cgroup.procs')!r}, 'w').write('0')\n" if group else ""
    code = join + _DRIVER
    done = subprocess.run(
        [sys.executable, "-c", code, textwrap.dedent(program), str(tmp_path / "pids"), what],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_group_stubborn_child_and_daemon_are_all_gone(tmp_path: Path) -> None:
    answer = drive(_FAMILY, tmp_path, "kill")
    assert len(answer["pids"]) == 3
    assert not any(alive(pid) for pid in answer["pids"])
    assert answer["zombies"] == []
    assert answer["how"]["signal"] == "SIGTERM"


#: Writes what it gets: itself, a child in its group, and one that has fled the group.
_SAVES = """
import os, signal, sys, time
out = os.open(sys.argv[1] + ".terms", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
def save(*_):
    os.write(out, b"%d " % os.getpid())
    time.sleep(0.2)
    os._exit(0)
signal.signal(signal.SIGTERM, save)
if os.fork() and os.fork() == 0:
    os.setsid()
with open(sys.argv[1], "a") as pids:
    pids.write(f"{os.getpid()}\\n")
time.sleep(60)
"""


def test_a_handler_at_work_is_not_asked_again(tmp_path: Path) -> None:
    """It may write a checkpoint: a second TERM would begin that again in the middle of it."""
    answer = drive(_SAVES, tmp_path, "kill")
    asked = (tmp_path / "pids.terms").read_text().split()
    assert sorted(map(int, asked)) == sorted(answer["pids"])


def test_an_exit_code_a_signal_and_the_peak_memory_are_told(tmp_path: Path) -> None:
    answer = drive("import sys; x = bytearray(50_000_000); sys.exit(7)", tmp_path, "wait")
    assert answer["how"]["code"] == 7
    assert answer["how"]["signal"] is None
    assert answer["how"]["peak_rss_bytes"] > 50_000_000
    answer = drive("import os; os.kill(os.getpid(), 11)", tmp_path, "wait")
    assert answer["how"]["code"] is None
    assert answer["how"]["signal"] == "SIGSEGV"


#: Two marked processes and an unmarked one. Each starts, with no environment and in a session of
#: its own, a daemon that has a child of its own, and then ends by itself or waits.
_STRAYS = """
import asyncio, json, os, signal, sys
from tunnelkit.agent.processes.table import ProcessTable

DAEMON = '''
import os, signal, time
def end(*_):
    os.write(1, b"asked ")
    os._exit(0)
signal.signal(signal.SIGTERM, end)
os.fork()
print(os.getpid(), flush=True)
time.sleep(600)
'''
FAMILY = '''
import os, subprocess, sys
daemon = [sys.executable, "-c", sys.argv[1]]
code = "import subprocess, sys; subprocess.Popen(sys.argv[1:], env={}, start_new_session=True)"
subprocess.run([sys.executable, "-c", code, *daemon], env={}, start_new_session=True)
if sys.argv[2] == "wait":
    import time
    time.sleep(600)
'''

async def main():
    table = ProcessTable()
    table.start()
    null = os.open(os.devnull, os.O_RDWR)
    families = []
    for how, marked in (("end", True), ("wait", True), ("end", False)):
        reader, writer = os.pipe()
        process = table.spawn([sys.executable, "-c", FAMILY, DAEMON, how], cwd="/",
            env=dict(os.environ), stdin=null, stdout=writer, stderr=null, marked=marked)
        os.close(writer)
        pipe = os.fdopen(reader)
        families.append((process, [int(pipe.readline()) for _ in range(2)], pipe))
    alive = []
    for process, _, _ in families:
        await table.end(process, 30.0)
        alive.append([[os.path.exists(f"/proc/{pid}") for pid in pids] for _, pids, _ in families])
    asked = [pipe.read() for _, _, pipe in families[:2]]
    for _, pids, _ in families:
        for pid in pids:
            try: os.kill(pid, signal.SIGKILL)
            except ProcessLookupError: pass
    print(json.dumps({"alive": alive, "asked": asked}))

asyncio.run(main())
"""


def test_a_daemon_without_environment_or_group_ends_with_its_own_run_only() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _STRAYS], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    gone, there = [False, False], [True, True]
    assert answer["alive"] == [[gone, there, there], [gone, gone, there], [gone, gone, there]]
    # They are asked to end, not only killed once the grace is over.
    assert answer["asked"] == ["asked asked "] * 2


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A cgroup with 64 MB for all that is in it, without swap to go to."""
    v1 = Path("/sys/fs/cgroup/memory")
    top = v1 if v1.is_dir() else Path("/sys/fs/cgroup")
    group = top / f"tk-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no memory cgroup can be made here: {error}")
    try:
        limit = group / ("memory.limit_in_bytes" if v1.is_dir() else "memory.max")
        if not limit.exists():
            pytest.skip("cgroups count no memory here")
        limit.write_text(str(64 << 20))
        for swap, most in (("memory.swap.max", "0"), ("memory.swappiness", "0")):
            if (group / swap).exists():
                (group / swap).write_text(most)
        yield group
    finally:
        group.rmdir()


@pytest.mark.root
def test_who_was_killed_for_memory(tmp_path: Path, small_group: Path) -> None:
    """The program itself, or a child of it; one that ended well meanwhile is not blamed."""
    hog = "b'x' * (256 << 20)"
    how = drive(hog, tmp_path, "run", group=small_group)["how"]
    assert (how["signal"], how["oom_kills"]) == ("SIGKILL", 1)
    child = f"import os, subprocess, sys\nsubprocess.run([sys.executable, '-c', {hog!r}])\n"
    how = drive(child + "sys.exit(1)", tmp_path, "run", group=small_group)["how"]
    assert (how["code"], how["oom_kills"]) == (1, 1)
    how = drive(child, tmp_path, "run", group=small_group)["how"]
    assert (how["code"], how["oom_kills"]) == (0, 0)
    how = drive("import sys\nsys.exit(3)", tmp_path, "run", group=small_group)["how"]
    assert (how["code"], how["oom_kills"]) == (3, 0)
