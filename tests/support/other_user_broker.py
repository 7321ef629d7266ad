"""Run programs as another user for somebody who may not.

An ordinary user's tests need a second ordinary user who attacks. Only root can start one, so
`scripts/ordinary-user` (root) starts this:

    other_user_broker.py serve SOCKET UID OTHER_NAME    until its stdin ends
    other_user_broker.py run SOCKET WORD...    run it there, with our stdin and outputs

It serves one uid alone and becomes one other user alone, never root. A program ends with the
connection of whoever asked for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import select
import signal
import socket
import struct
import subprocess
import sys
import threading

_REQUEST_BYTES = 1 << 20
_LENGTH = struct.Struct("!I")
_CREDENTIALS = struct.Struct("3i")


def serve(path: str, client_uid: int, other: pwd.struct_passwd) -> None:
    """Answer at the Unix socket `path` until stdin ends."""
    if other.pw_uid == 0:
        raise SystemExit("the other user must not be root")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        os.chown(path, client_uid, -1)
        os.chmod(path, 0o600)
        server.listen(64)
        print("ready", flush=True)
        while True:
            ready, _, _ = select.select([server, sys.stdin], [], [])
            if sys.stdin in ready:
                return
            connection, _ = server.accept()
            threading.Thread(
                target=_serve_one, args=(connection, client_uid, other), daemon=True
            ).start()


def _serve_one(connection: socket.socket, client_uid: int, other: pwd.struct_passwd) -> None:
    with connection:
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        if _CREDENTIALS.unpack(raw)[1] != client_uid:
            return
        head, descriptors, _, _ = socket.recv_fds(connection, _LENGTH.size, 3)
        try:
            words = json.loads(_receive(connection, _LENGTH.unpack(head)[0]))
            process = subprocess.Popen(
                words,
                stdin=descriptors[0],
                stdout=descriptors[1],
                stderr=descriptors[2],
                user=other.pw_uid,
                group=other.pw_gid,
                extra_groups=[],
                cwd="/",
                env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/", "LANG": "C.UTF-8"},
                start_new_session=True,
            )
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        threading.Thread(target=_end_with, args=(connection, process), daemon=True).start()
        code = process.wait()
        with contextlib.suppress(OSError):
            connection.sendall(_LENGTH.pack(code & 0xFF if code >= 0 else 128 - code))


def _end_with(connection: socket.socket, process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):
        connection.recv(1)
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _receive(connection: socket.socket, length: int) -> bytes:
    if length > _REQUEST_BYTES:
        raise ValueError("the request is too long")
    data = b""
    while len(data) < length:
        chunk = connection.recv(length - len(data))
        if not chunk:
            raise EOFError
        data += chunk
    return data


def run(path: str, words: list[str]) -> int:
    """Have the broker run `words` with our first three descriptors; return the exit code."""
    request = json.dumps(words).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        socket.send_fds(connection, [_LENGTH.pack(len(request))], [0, 1, 2])
        connection.sendall(request)
        # Its end is the program's, not ours: only one of us may hold the pipes open.
        for descriptor in (0, 1):
            os.close(descriptor)
        answer = connection.recv(_LENGTH.size, socket.MSG_WAITALL)
    return int(_LENGTH.unpack(answer)[0]) if len(answer) == _LENGTH.size else 255


if __name__ == "__main__":
    if len(sys.argv) == 5 and sys.argv[1] == "serve":
        serve(sys.argv[2], int(sys.argv[3]), pwd.getpwnam(sys.argv[4]))
    elif len(sys.argv) > 3 and sys.argv[1] == "run":
        sys.exit(run(sys.argv[2], sys.argv[3:]))
    else:
        sys.exit(__doc__)
