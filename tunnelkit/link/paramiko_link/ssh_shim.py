"""A program that looks like ssh to rsync and sshfs, and rides on a link of this laptop.

    python ssh_shim.py SOCKET NODE [ssh's options] HOST [command ...]

The link that lends it listens on SOCKET (link/paramiko_link/ssh_shim_server.py). Standard library
only, and started as a file: a transfer waits for its start.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
import threading

STDOUT, STDERR, EXIT = 1, 2, 3
HEADER = struct.Struct(">BI")
_PIECE_BYTES = 1 << 18
#: ssh's options that are followed by a value.
_WITH_VALUE = "BbcDEeFIiJLlmOoPpQRSWw"


def parse(words: list[str]) -> tuple[str, bool]:
    """The command (or subsystem) in ssh's words, and whether it is a subsystem. Options are
    read as ssh reads them, before and after the host, and none has a say here."""
    rest, hosts, subsystem = list(words), 0, False
    while (rest and hosts == 0) or (rest and rest[0].startswith("-") and rest[0] != "-"):
        word = rest.pop(0)
        if word == "--":
            if hosts == 0 and rest:
                rest.pop(0)
            break
        if not word.startswith("-"):
            hosts += 1
            continue
        for at, letter in enumerate(word[1:], 2):
            subsystem = subsystem or letter == "s"
            if letter in _WITH_VALUE:
                if at == len(word) and rest:
                    rest.pop(0)
                break
    return " ".join(rest), subsystem


def main(argv: list[str]) -> int:
    """Run one command through the link; return its exit status, 255 if the link is lost."""
    path, node, *words = argv
    command, subsystem = parse(words)
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.connect(path)
    except OSError as error:
        print(f"the connection to the cluster is lost ({error.strerror})", file=sys.stderr)
        return 255
    request = {"node": node or None, "command": command, "subsystem": subsystem}
    sock.sendall(json.dumps(request).encode() + b"\n")
    threading.Thread(target=_send_stdin, args=(sock,), daemon=True).start()
    return _receive(sock)


def _send_stdin(sock: socket.socket) -> None:
    try:
        while data := os.read(0, _PIECE_BYTES):
            sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def _receive(sock: socket.socket) -> int:
    with sock.makefile("rb", buffering=_PIECE_BYTES) as frames:
        while len(header := frames.read(HEADER.size)) == HEADER.size:
            kind, size = HEADER.unpack(header)
            if kind == EXIT:
                return int(size)
            data = memoryview(frames.read(size))
            try:
                while data:
                    data = data[os.write(1 if kind == STDOUT else 2, data) :]
            except OSError:
                return 255
    return 255


if __name__ == "__main__":
    code = main(sys.argv[1:])
    # Not by the interpreter's end, which would wait for the thread at stdin.
    os._exit(code)
