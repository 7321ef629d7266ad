"""Who dialled in: by the socket, through /proc."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tunnelkit.agent.processes.peer_process import PeerProcess, identify, of_process

#: Dials in, or has its child do so, and waits for its stdin to end.
_DIAL = """\
import os, socket, sys
if sys.argv[2] == "child" and os.fork():
    os.wait()
else:
    peer = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    print(os.getpid(), flush=True)
    sys.stdin.read()
"""


@contextmanager
def dialled(who: str = "self", **environ: str) -> Iterator[tuple[socket.socket, int, int]]:
    """Our end of a connection, the pid that dialled in, and the pid of what we started."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        argv = [sys.executable, "-S", "-c", _DIAL, str(listener.getsockname()[1]), who]
        env = {**{key: os.environ[key] for key in ("PATH",)}, **environ}
        with subprocess.Popen(
            argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            assert process.stdin is not None and process.stdout is not None
            try:
                sock, _ = listener.accept()
                with sock:
                    yield sock, int(process.stdout.readline()), process.pid
            finally:
                process.stdin.close()


def test_a_process_is_known_by_its_connection() -> None:
    with dialled(TK_PROCESS="1.00000007", RANK="3", ODD="a=b\nc") as (sock, pid, started):
        found = identify(sock)
        assert (found.pid, found.tag) == (pid, "1.00000007") and pid == started
        assert found.environ["RANK"] == "3" and found.environ["ODD"] == "a=b\nc"
        assert found.ancestors[0] == os.getpid() and found.ancestors[-1] == 1
        # Whatever is looked at first.
        assert identify(sock, [pid]) == identify(sock, [os.getpid(), 10**7]) == found
        assert of_process(pid) == found


def test_a_child_is_not_taken_for_its_parent() -> None:
    with dialled("child") as (sock, pid, started):
        found = identify(sock, [started])
        assert found.pid == pid != started and found.tag == ""
        assert found.ancestors[:2] == (started, os.getpid())


def test_one_that_is_gone_is_nobody() -> None:
    with dialled() as (sock, pid, _):
        os.kill(pid, 9)
        assert sock.recv(1) == b""
        assert identify(sock) == PeerProcess()
    assert of_process(pid) == PeerProcess(pid)
    assert identify(socket.socket()) == PeerProcess()


def test_it_travels_as_json() -> None:
    one = PeerProcess(7, "1.2", (3, 1), {"A": "b"})
    assert PeerProcess.from_json(json.loads(json.dumps(one.to_json()))) == one
    assert PeerProcess.from_json({}) == PeerProcess()
