"""Python stacks of a running job's processes that stand still: py-spy, run in the job on its nodes.

It is the node's own py-spy, beside the program's interpreter or in PATH; else the one that is
installed beside tk (tunnelkit[native]), sent by stdin and kept in memory. Nothing is installed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

from tunnelkit.debug.ranks.py_spy_dump import NoStack, Refusal, read_dump
from tunnelkit.debug.ranks.sample import RankSample, RankState
from tunnelkit.diagnosis.evidence.json_fields import Fields
from tunnelkit.diagnosis.evidence.stacks import Frame, Held, StackView
from tunnelkit.errors import TunnelkitError
from tunnelkit.session.agent.find_python import running
from tunnelkit.session.debugging.py_spy import PySpyBinary, find_binary, load_binary
from tunnelkit.session.why.running import Enter

_LIMIT_S = 45.0
_MOST_OF_A_NODE = 8
_MOST_BYTES = 16 << 20
_NEEDS = "needs "
#: argv: pids. stdin: py-spy by gzip, or nothing. One line for each process; `needs MACHINE` if
#: there is no py-spy. A process in the kernel (D) can't be traced, and py-spy would wait with it.
_ASK = r"""
import gzip, json, os, shutil, subprocess, sys
data, fd, program = sys.stdin.buffer.read(), -1, None
if data:
    data = memoryview(gzip.decompress(data))
    fd = os.memfd_create("py-spy", 0)
    while data:
        data = data[os.write(fd, data):]
    os.set_inheritable(fd, True)
    program = "/proc/self/fd/%d" % fd
for pid in sys.argv[1:]:
    base = "/proc/" + pid
    try:
        stat = open(base + "/stat").read().rpartition(")")[2].split()
        words = open(base + "/cmdline", "rb").read().split(b"\0")
        cwd = os.readlink(base + "/cwd")
    except OSError:
        continue
    if stat[0] not in "RS":
        continue
    beside = os.path.join(os.path.dirname(os.path.join(cwd, os.fsdecode(words[0]))), "py-spy")
    own = program or (beside if os.access(beside, os.X_OK) else shutil.which("py-spy"))
    if not own:
        print("needs", os.uname().machine)
        break
    try:
        done = subprocess.run([own, "dump", "--json", "--pid", pid], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=15, pass_fds=[fd][:fd + 1])
        said = done.stdout[:4000000].decode("utf-8", "replace")
    except (OSError, subprocess.TimeoutExpired) as error:
        said = "Error: %s" % error
    print(json.dumps({"pid": int(pid), "cwd": cwd, "said": said}))
"""


async def py_spy_stacks(
    enter: Enter, job_id: str, wanted: Sequence[tuple[str, int]], python: str
) -> tuple[tuple[StackView, ...], tuple[str, ...]]:
    """Return the stacks that can be read, and why others are missing. wanted: nodes and pids."""
    by_node: dict[str, list[int]] = {}
    for node, pid in wanted:
        by_node.setdefault(node, []).append(pid)

    async def ask(node: str, pids: Sequence[int]) -> tuple[list[StackView], str]:
        words = [str(pid) for pid in pids[:_MOST_OF_A_NODE]]
        argv = running(python, "-c", [_ASK, *words])
        try:
            async with asyncio.timeout(_LIMIT_S):
                out = await enter(job_id, node, argv, stdin=b"", timeout_s=_LIMIT_S)
                machine = _needs(out)
                if machine:
                    binary = await asyncio.to_thread(_binary_for, machine)
                    if binary is None:
                        return [], f"stacks on {node}: it has no py-spy, nor has this computer"
                    data = await asyncio.to_thread(binary.packed)
                    out = await enter(job_id, node, argv, stdin=data, timeout_s=_LIMIT_S)
        except (TunnelkitError, TimeoutError) as error:
            why = error.one_line() if isinstance(error, TunnelkitError) else "no answer in time"
            return [], f"stacks on {node}: {why}"
        return read_answers(out, node)

    found = await asyncio.gather(*(ask(node, pids) for node, pids in by_node.items()))
    views = tuple(view for some, _ in found for view in some)
    return views, tuple(why for _, why in found if why)


def read_answers(out: bytes, node: str) -> tuple[list[StackView], str]:
    """Return the stacks in the answer of a node, and why the first one is missing, or ""."""
    views, why = [], ""
    for line in out[:_MOST_BYTES].splitlines()[: 2 * _MOST_OF_A_NODE]:
        try:
            value: object = json.loads(line.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            continue
        answer = Fields(value)
        said = value.get("said") if isinstance(value, dict) else None
        if not isinstance(said, str) or not answer.whole("pid"):
            continue
        pid = answer.whole("pid")
        stack = read_dump(said.encode("utf-8", "replace"), pid, answer.text("cwd"))
        if not isinstance(stack, NoStack):
            frames = tuple(Frame(one.file, one.line, one.function) for one in stack.frames)
            views.append(StackView(node, pid, frames))
        elif stack.kind is Refusal.PTRACE:
            why = why or f"stacks on {node}: the system forbids py-spy to look (Yama, ptrace_scope)"
    return views, why


def debugged_stacks(samples: Sequence[RankSample], source: str) -> tuple[StackView, ...]:
    """Return what a session's debuggees have answered. source: whom they answered."""
    held = {RankState.STOPPED: Held.STOPPED, RankState.WAITING: Held.WAITING}
    return tuple(
        StackView(
            one.node,
            one.pid,
            tuple(Frame(each.file, each.line, each.function) for each in one.frames),
            Held.FAILED if one.failure is not None else held.get(one.state, Held.NOT),
            source,
            one.rank if len(samples) > 1 else None,
        )
        for one in samples
        if one.state in (RankState.RUNNING, *held)
    )


def _needs(out: bytes) -> str:
    lines = out[:200].decode("utf-8", "replace").splitlines()
    return lines[0].removeprefix(_NEEDS).strip()[:20] if out.startswith(_NEEDS.encode()) else ""


def _binary_for(machine: str) -> PySpyBinary | None:
    try:
        binary = load_binary(Path(find_binary()))
    except TunnelkitError:
        return None
    return binary if binary.machine == machine else None
