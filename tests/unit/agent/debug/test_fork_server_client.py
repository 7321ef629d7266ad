"""A forked debuggee is to its program what `python -m debugpy` is."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.agent.loop_rig import DEADLINE_S, loop_rig
from tests.unit.agent.relay_rig import process_table
from tunnelkit.agent.debug.fork_server_client import ForkServer, PreloadFailed, ServerEnded, Unfit
from tunnelkit.agent.processes.table import ProcessTable
from tunnelkit.debug.adapter.adapter import Adapters
from tunnelkit.demo.dap_client import DapClient

#: What a program can see of how it was started. In one line, so that it can be -c CODE.
LOOK = """\
import gc, json, os, resource, signal, socket, sys, threading;\
 kind = lambda fd: os.readlink(f"/proc/self/fd/{fd}").split(":")[0];\
 fds = [int(name) for name in os.listdir("/proc/self/fd")];\
 live = [fd for fd in fds if os.path.exists(f"/proc/self/fd/{fd}")];\
 told = dict(\
 argv=sys.argv, path=sys.path, name=__name__, file=globals().get("__file__"),\
 spec=__spec__ and __spec__.name, package=__package__, main=sorted(globals()),\
 is_main=sys.modules["__main__"].__dict__ is globals(),\
 loader=type(__loader__).__name__ if "__loader__" in globals() else None,\
 flags=str(sys.flags), xoptions=sorted(sys._xoptions), warnings=sys.warnoptions,\
 executable=sys.executable, prefix=sys.prefix, cwd=os.getcwd(), environ=dict(os.environ),\
 own_pid=os.getpid() == int(os.readlink("/proc/self")),\
 leader=os.getpid() == os.getsid(0) == os.getpgid(0), umask=os.umask(0o22),\
 signals={number.name: str(signal.getsignal(number)) for number in signal.Signals},\
 masked=sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),\
 threads=sorted(one.name for one in threading.enumerate()\
  if not getattr(one, "is_pydev_daemon_thread", False)),\
 main_thread=threading.current_thread() is threading.main_thread(),\
 stdin=kind(0), stdout=kind(1), stderr=kind(2), buffered=sys.stdout.line_buffering,\
 encoding=[sys.stdin.encoding, sys.stdout.encoding, sys.stdout.errors, sys.stderr.errors],\
 descriptors=sorted(kind(fd) for fd in live),\
 inheritable=sorted(fd for fd in live if os.get_inheritable(fd)),\
 limit=resource.getrlimit(resource.RLIMIT_NOFILE), recursion=sys.getrecursionlimit(),\
 switch=sys.getswitchinterval(), garbage=[gc.isenabled(), gc.get_threshold()],\
 ours=sorted(name for name in sys.modules if name.startswith("tunnelkit")),\
 importers=[one for one in sys.path_importer_cache\
  if one.endswith(("/tunnelkit", "/debuggee", "/guard", "/mux"))],\
 hooks=[str(sys.excepthook), str(sys.displayhook), str(sys.unraisablehook)]);\
 open("told.json", "w").write(json.dumps(told, default=str))
"""

TARGETS: dict[str, list[str]] = {
    "file": ["look.py", "--a", "two words"],
    "file in a directory": ["below/look.py"],
    "module": ["-m", "look", "--b"],
    "package": ["-m", "package.look"],
    "code": ["-c", LOOK.rstrip("\n"), "x"],
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in ("look.py", "below/look.py", "package/look.py", "package/__init__.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(LOOK if path.name == "look.py" else "")
    return tmp_path


def told(place: Path) -> dict[str, Any]:
    path = place / "told.json"
    found: dict[str, Any] = json.loads(path.read_text())
    path.unlink()
    found["environ"].pop("TK_PROCESS", None)
    return found


def differences(found: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    """What is not as it should be, and how it should be."""
    names = found.keys() | expected.keys()
    values = {name: (found.get(name), expected.get(name)) for name in names}
    return {
        name: differences(*pair) if isinstance(pair[0], dict) else pair
        for name, pair in values.items()
        if pair[0] != pair[1]
    }


async def stock(place: Path, switches: list[str], target: list[str]) -> dict[str, Any]:
    """What the program sees under `python -m debugpy --connect`, started as the agent does it."""
    adapters = Adapters()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        words = ["-m", "debugpy", "--connect", address, "--wait-for-client", *target]
        env = {"PYDEVD_DISABLE_FILE_VALIDATION": "1", "OMP_NUM_THREADS": "1"}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, *switches, *words),
            cwd=place,
            env={**os.environ, **env, "PYTHONUNBUFFERED": "1"},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        adapter = await adapters.start()
        try:
            sock, _ = await asyncio.get_running_loop().sock_accept(listener)
            debuggee = await asyncio.open_connection(sock=sock)
            server = await asyncio.open_connection("127.0.0.1", adapter.server_port)
            pumps = [
                asyncio.create_task(_pump(debuggee[0], server[1])),
                asyncio.create_task(_pump(server[0], debuggee[1])),
            ]
            editor = DapClient()
            await editor.connect(adapter.client_port)
            await editor.attach({}, timeout_s=DEADLINE_S)
            _, errors = await process.communicate()
            assert process.returncode == 0, errors.decode()
            await editor.drop()
            await asyncio.gather(*pumps)
        finally:
            adapter.close()
            await adapters.close()
            if process.returncode is None:
                process.kill()
                await process.wait()
    return told(place)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("switches", [[], ["-X", "utf8", "-W", "error::UserWarning", "-O"], ["-I"]])
async def test_a_program_sees_what_it_sees_under_debugpys_own_start(
    place: Path, switches: list[str], name: str
) -> None:
    if switches == ["-I"] and name in ("module", "package"):
        pytest.skip("python -I doesn't look for modules in the current directory")
    target = TARGETS[name]
    async with loop_rig(place, *switches, *target) as rig:
        await rig.go(1)
        ended = await rig.event("ended", generation=1)
        assert ended["code"] == 0, rig.out.decode()
        assert rig.told("fork-server")
        found = told(place)
    expected = await stock(place, switches, target)
    # debugpy's own start leaves this behind where it runs a module.
    expected["main"] = [name for name in expected["main"] if name != "cli"]
    # ... and a relative directory first, which would follow a chdir.
    if name != "code" and expected["path"]:
        expected["path"][0] = os.path.join(os.path.realpath(place), expected["path"][0]).rstrip("/")
    # Its line to the agent; nothing that it executes will have that.
    found["descriptors"].remove("socket")
    assert differences(found, expected) == {}
    assert found["inheritable"] == [0, 1, 2] and found["own_pid"] and found["leader"]


@pytest.fixture
async def table() -> Any:
    async with process_table() as made:
        yield made


def server(table: ProcessTable, place: Path, **options: Any) -> ForkServer:
    return ForkServer(
        table,
        options.pop("interpreter", [sys.executable]),
        cwd=str(place),
        env=dict(os.environ),
        preload=options.pop("preload", []),
        on_output=lambda kind, data: None,
    )


async def test_a_server_that_has_ended_says_how(table: ProcessTable, place: Path) -> None:
    one = server(table, place)
    await one.start()
    assert one.pid is not None and one.is_alive
    os.kill(one.pid, 9)
    with pytest.raises(ServerEnded, match="the fork server has ended: signal SIGKILL"):
        await one.fork(1, ["x"])
    assert not one.is_alive
    await one.close()
    assert one.pid is None


async def test_a_python_without_debugpy_is_an_ended_server(
    table: ProcessTable, place: Path
) -> None:
    one = server(table, place, interpreter=[sys.executable, "-S", "-I"])
    with pytest.raises(ServerEnded, match="exit code 1"):
        await one.start()
    await one.close()


async def test_no_descriptor_is_left_after_forks_refusals_and_failures(
    table: ProcessTable, place: Path
) -> None:
    (place / "late.py").write_text("import threading\n")
    before = len(os.listdir("/proc/self/fd"))
    one = server(table, place, preload=["late"])
    await one.start()
    for number in range(3):
        run = await one.fork(number, ["--connect", "127.0.0.1:1", "look.py"])
        await table.end(run.process, 1.0)
        await run.close()
    (place / "late.py").write_text("changed = True\n")
    with pytest.raises(Unfit, match=r"late\.py has changed") as unfit:
        await one.fork(4, ["look.py"])
    assert unfit.value.stale
    await one.close()
    failing = server(table, place, preload=["nowhere.to_be_found"])
    with pytest.raises(PreloadFailed, match=r"--preload nowhere.to_be_found: ModuleNotFound"):
        await failing.start()
    await failing.close()
    assert len(os.listdir("/proc/self/fd")) == before


async def test_a_directory_that_is_gone_is_told_by_the_debuggee(
    table: ProcessTable, place: Path
) -> None:
    below = place / "gone"
    below.mkdir()
    one = ForkServer(
        table,
        [sys.executable],
        cwd=str(below),
        env=dict(os.environ),
        preload=[],
        on_output=lambda kind, data: None,
    )
    await one.start()
    below.rmdir()
    run = await one.fork(1, ["--connect", "127.0.0.1:1", "look.py"])
    wrote: list[bytes] = []
    run.begin(lambda kind, data: wrote.append(data), lambda told: None)
    how = await asyncio.wait_for(run.process.exited, DEADLINE_S)
    await run.drain(5.0)
    assert how.code == 1 and b"gone: No such file or directory" in b"".join(wrote)
    await run.close()
    await one.close()
