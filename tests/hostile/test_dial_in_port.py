"""A dial-in port that somebody else has taken: no debuggee obeys him, nor what it started."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.other_user import OtherUser
from tunnelkit.agent.debug.fork_server_client import agent_path
from tunnelkit.debuggee.debugpy_launcher import START
from tunnelkit.debuggee.inject import INJECT
from tunnelkit.mux.dap_framing import DapReader, encode

pytestmark = pytest.mark.root

#: Starts a Python in each way that there is, each of which dials the port.
PROGRAM = """
import multiprocessing, os, subprocess, sys, time

def nothing():
    pass

if __name__ == "__main__":
    while not os.path.exists("go"):
        time.sleep(0.01)
    how = open("go").read()
    if how == "file":
        subprocess.run([sys.executable, "child.py"])
    elif how == "code":
        subprocess.run([sys.executable, "-c", "pass"])
    elif how == "module":
        subprocess.run([sys.executable, "-m", "child"])
    elif how == "grandchild":
        code = "import subprocess, sys; subprocess.run([sys.executable, 'child.py'])"
        subprocess.run([sys.executable, "-c", code])
    elif how == "clean":
        subprocess.run([sys.executable, "child.py"], env={}, start_new_session=True)
    elif how == "exec":
        os.execv(sys.executable, [sys.executable, "child.py"])
    elif how == "fork":
        if os.fork() == 0:
            nothing()
            os._exit(0)
        os.wait()
    else:
        child = multiprocessing.get_context(how).Process(target=nothing)
        child.start()
        child.join()
"""
#: Takes the port, asks whoever dials to introduce itself, and says how many bytes it got.
TAKES_THE_PORT = """
import json, socket, sys
order = json.loads(sys.stdin.read())
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("127.0.0.1", order["port"]))
listener.listen()
listener.settimeout(60)
open(order["ready"], "w").close()
body = b'{"seq":1,"type":"request","command":"initialize","arguments":{"adapterID":"x"}}'
peer, _ = listener.accept()
peer.settimeout(20)
got = b""
try:
    peer.sendall(b"Content-Length: %d\\r\\n\\r\\n" % len(body) + body)
    while b"initialize" not in got and (data := peer.recv(65536)):
        got += data
except OSError:
    pass
print(json.dumps({"obeyed": "initialize" in got.decode("utf-8", "replace")}))
"""
WAYS = ["file", "code", "module", "grandchild", "clean", "exec", "fork", "spawn", "forkserver"]


class Adapter:
    """The own user's end of a debuggee: makes it run."""

    def __init__(self) -> None:
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen()
        self.listener.settimeout(30)
        self.port = self.listener.getsockname()[1]
        self._peer: socket.socket | None = None

    def serve(self) -> None:
        """Take the debuggee that dials, let it go, and give the port up."""
        self._peer, _ = self.listener.accept()
        self._peer.settimeout(30)
        frames = DapReader()
        for seq, command in enumerate(("initialize", "attach", "configurationDone"), 1):
            arguments: dict[str, Any] = {"adapterID": "x"} if seq == 1 else {}
            request = {"seq": seq, "type": "request", "command": command, "arguments": arguments}
            self._peer.sendall(encode(request))
            while not any(
                json.loads(body).get("command") == command
                for body in frames.feed(self._peer.recv(65536))
            ):
                pass
        self.listener.close()

    def close(self) -> None:
        self.listener.close()
        if self._peer is not None:
            self._peer.close()


@pytest.fixture
def adapter() -> Iterator[Adapter]:
    made = Adapter()
    yield made
    made.close()


def debuggee(port: int, directory: Path) -> subprocess.Popen[bytes]:
    (directory / "program.py").write_text(PROGRAM)
    (directory / "child.py").write_text("pass\n")
    dial = ["--connect", f"127.0.0.1:{port}", "--wait-for-client"]
    return subprocess.Popen(
        [sys.executable, "-c", START, agent_path(), *dial, "program.py"],
        cwd=directory,
        env={**os.environ, "PYDEVD_DISABLE_FILE_VALIDATION": "1"},
        start_new_session=True,
    )


def attacked(other_user: OtherUser, port: int, ready: Path) -> subprocess.Popen[str]:
    """Somebody else listens on the port."""
    process = subprocess.Popen(
        other_user.script(TAKES_THE_PORT),
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    with process.stdin as stdin:
        stdin.write(json.dumps({"port": port, "ready": str(ready)}))
    deadline = time.monotonic() + 30
    while not ready.exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    return process


def answer(process: subprocess.Popen[str]) -> bool:
    assert process.stdout is not None
    with process.stdout as stdout:
        said = stdout.read()
    process.wait(30)
    return bool(json.loads(said)["obeyed"])


@pytest.fixture
def open_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory that he may write to."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        os.chmod(name, 0o777)
        yield Path(name)


@pytest.mark.parametrize("how", WAYS)
def test_what_a_debuggee_starts_obeys_nobody_else(
    how: str, other_user: OtherUser, adapter: Adapter, tmp_path: Path, open_place: Path
) -> None:
    process = debuggee(adapter.port, tmp_path)
    try:
        adapter.serve()
        attacker = attacked(other_user, adapter.port, open_place / "ready")
        (tmp_path / "go.new").write_text(how)
        (tmp_path / "go.new").rename(tmp_path / "go")
        assert answer(attacker) is False
    finally:
        adapter.close()
        os.killpg(process.pid, 9)
        process.wait()


def test_a_debuggee_itself_obeys_nobody_else(
    other_user: OtherUser, adapter: Adapter, tmp_path: Path, open_place: Path
) -> None:
    adapter.listener.close()
    attacker = attacked(other_user, adapter.port, open_place / "ready")
    process = debuggee(adapter.port, tmp_path)
    try:
        assert answer(attacker) is False
    finally:
        process.kill()
        process.wait()


#: Runs until it is told to start another Python.
ATTACHED = """
import os, subprocess, sys, time
print("runs", flush=True)
while not os.path.exists("go"):
    time.sleep(0.01)
subprocess.run([sys.executable, "child.py"])
"""


def can_attach() -> bool:
    if sys.version_info >= (3, 14):
        return True
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        tried = ["gdb", "--batch", "--nx", "--pid", str(sleeper.pid), "-ex", "detach"]
        done = subprocess.run(tried, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode == 0 and "ptrace: " not in done.stderr
    except FileNotFoundError:
        return False
    finally:
        sleeper.kill()
        sleeper.wait()


def test_a_process_that_is_attached_to_obeys_nobody_else_when_it_dials_first(
    other_user: OtherUser, adapter: Adapter, tmp_path: Path, open_place: Path
) -> None:
    """The agent was killed, and its port taken, between the injection and the dial."""
    if not can_attach():
        pytest.skip("no debugger can attach to a process here")
    adapter.listener.close()
    attacker = attacked(other_user, adapter.port, open_place / "ready")
    program = subprocess.Popen(
        [sys.executable, "-c", ATTACHED],
        cwd=tmp_path,
        env={**os.environ, "PYDEVD_DISABLE_FILE_VALIDATION": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert program.stdout is not None
    try:
        assert program.stdout.readline() == b"runs\n"
        dial = ["--connect", f"127.0.0.1:{adapter.port}", "--pid", str(program.pid)]
        injected = [sys.executable, "-c", INJECT, agent_path(), *dial]
        subprocess.run(injected, cwd="/", capture_output=True, timeout=60, check=False)
        assert answer(attacker) is False
        assert program.poll() is None
    finally:
        program.stdout.close()
        program.kill()
        program.wait()


def test_what_a_process_starts_that_was_attached_to_obeys_nobody_else(
    other_user: OtherUser, adapter: Adapter, tmp_path: Path, open_place: Path
) -> None:
    if not can_attach():
        pytest.skip("no debugger can attach to a process here")
    (tmp_path / "child.py").write_text("pass\n")
    program = subprocess.Popen(
        [sys.executable, "-c", ATTACHED],
        cwd=tmp_path,
        env={**os.environ, "PYDEVD_DISABLE_FILE_VALIDATION": "1"},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert program.stdout is not None
    try:
        assert program.stdout.readline() == b"runs\n"
        dial = ["--connect", f"127.0.0.1:{adapter.port}", "--pid", str(program.pid)]
        injected = [sys.executable, "-c", INJECT, agent_path(), *dial]
        injector = subprocess.Popen(injected, cwd="/", stdout=subprocess.DEVNULL)
        adapter.serve()
        assert injector.wait(60) == 0
        attacker = attacked(other_user, adapter.port, open_place / "ready")
        (tmp_path / "go").touch()
        assert answer(attacker) is False
        assert program.wait(30) == 0
    finally:
        adapter.close()
        program.stdout.close()
        if program.poll() is None:
            os.killpg(program.pid, 9)
            program.wait()
