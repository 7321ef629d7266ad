"""`attach`: hand this process's stdin and stdout to the agent, then wait.

Each process that can run a command on the node can so give the agent a link. The descriptors
themselves are passed (SCM_RIGHTS), so the bytes don't go through this process.
"""

import array
import os
import socket
import subprocess
import sys
import time
from typing import List, Optional

from tunnelkit.agent import zip_lease
from tunnelkit.agent.links import socket_dir

NO_AGENT = 66
_START_TIMEOUT_S = 20.0
#: For an agent whose job has just begun.
_WAIT_S = 5.0
#: What `attach --wait` says once it has the agent; the session takes it for no part of the hello.
REACHED = b"tk-reached\n"


def connect(name: str) -> Optional[socket.socket]:
    """A connection to the running agent `name`, or None if there is none."""
    for path in socket_dir.find_sockets(name):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.connect(path)
            return sock
        except OSError:
            sock.close()
    return None


def attach(name: str, start_argv: Optional[List[str]] = None, wait: bool = False) -> int:
    """Give the agent our stdin and stdout; return once it lets go of them.

    With `start_argv`, an agent that is not there is started, detached from this
    process. wait: it is waited for a little, and REACHED says that it is there. Returns NO_AGENT
    if there is none.
    """
    sock = connect(name)
    deadline = time.monotonic() + _WAIT_S
    while wait and sock is None and time.monotonic() < deadline:
        time.sleep(0.02)
        sock = connect(name)
    if sock is None and start_argv is not None:
        sock = _start(name, start_argv)
    if sock is None:
        print(f"tunnelkit: no agent {name} on this node", file=sys.stderr)
        return NO_AGENT
    if wait:
        os.write(1, REACHED)
    rights = array.array("i", [0, 1])
    sock.sendmsg([b"L"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    # The agent now reads our stdin. A copy of stdout left open here would keep the
    # far end from seeing the end of the stream.
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    # Now that nobody waits for us.
    zip_lease.renew(os.path.abspath(sys.argv[0]))
    while True:
        try:
            if not sock.recv(1):
                return 0
        except OSError:
            return 0


def _start(name: str, argv: List[str]) -> Optional[socket.socket]:
    directory = socket_dir.make_directory()
    log = os.open(
        os.path.join(directory, name + ".log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600
    )
    child = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        close_fds=True,
    )
    os.close(log)
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline:
        sock = connect(name)
        if sock is not None:
            return sock
        if child.poll() is not None and connect(name) is None:
            print(f"tunnelkit: agent ended with {child.returncode}", file=sys.stderr)
            return None
        time.sleep(0.02)
    return None
