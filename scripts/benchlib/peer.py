"""The far end of the forward benchmarks; runs on the node, standard library only.

    python3 peer.py            prints its port; ends when its stdin does

A connection says in its first byte what it wants: E echoes all that comes, S takes
u64 bytes and then answers one byte, D is sent u64 bytes, M exchanges messages of a header
(u64, the size) and a body, each written by itself, as DAP's and HTTP's servers do.
"""

import socket
import struct
import sys
import threading
import time

BUFFER_BYTES = 256 * 1024
#: From a message's header to its body, or both would go as one.
BETWEEN_S = 0.0005
_COUNT = struct.Struct("!Q")


def _exactly(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = sock.recv(count - len(data))
        if not more:
            raise ConnectionError("hung up early")
        data += more
    return data


def _echo(sock: socket.socket) -> None:
    while data := sock.recv(BUFFER_BYTES):
        sock.sendall(data)


def _sink(sock: socket.socket) -> None:
    (left,) = _COUNT.unpack(_exactly(sock, _COUNT.size))
    buffer = bytearray(BUFFER_BYTES)
    while left:
        count = sock.recv_into(buffer, min(left, BUFFER_BYTES))
        if not count:
            return
        left -= count
    sock.sendall(b"!")


def _source(sock: socket.socket) -> None:
    (left,) = _COUNT.unpack(_exactly(sock, _COUNT.size))
    block = memoryview(bytes(range(256)) * (BUFFER_BYTES // 256))
    while left:
        count = min(left, BUFFER_BYTES)
        sock.sendall(block[:count])
        left -= count


def _messages(sock: socket.socket) -> None:
    while True:
        header = _exactly(sock, _COUNT.size)
        body = _exactly(sock, _COUNT.unpack(header)[0])
        sock.sendall(header)
        time.sleep(BETWEEN_S)
        sock.sendall(body)


def _serve(sock: socket.socket) -> None:
    with sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            wanted = sock.recv(1)
            work = {b"E": _echo, b"S": _sink, b"D": _source, b"M": _messages}.get(wanted)
            if work is not None:
                work(sock)
        except OSError:
            pass


def _accept(listener: socket.socket) -> None:
    while True:
        sock, _ = listener.accept()
        threading.Thread(target=_serve, args=(sock,), daemon=True).start()


def main() -> None:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)
    print(listener.getsockname()[1], flush=True)
    threading.Thread(target=_accept, args=(listener,), daemon=True).start()
    sys.stdin.buffer.read()


if __name__ == "__main__":
    main()
