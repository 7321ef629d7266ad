"""The way in where no way leads into the job: the agent dials a process of ours on the login host.

`meet FILE NODE` runs on the login host, tied to the session's ssh stream. It listens, and writes
an invitation: where, and a fresh secret (FILE, 0600, in the home that both hosts share). The
agent (`serve NAME --meet FILE`) looks for it while it has no link, and dials. Each proves to the
other that it can read the file, without telling the secret; then bytes go through.

    login -> agent   32 bytes, random: L
    agent -> login   32 bytes, random: A; HMAC-SHA256(secret, "agent" L A)
    login -> agent   HMAC-SHA256(secret, "login" L A)
"""

import asyncio
import contextlib
import hashlib
import hmac
import json
import os
import select
import socket
import stat
import sys
import threading
import time
from typing import Awaitable, Callable, Dict, List, Optional, Tuple

_NONCE_BYTES = 32
_PROOF_BYTES = 32
#: For all that a peer has to say, however slowly it says it.
_PROOF_TIMEOUT_S = 1.0
#: So many may be heard at once; others wait for a moment.
_GUESTS = 256
#: The session waits for the agent's hello a little longer than this.
_MEET_TIMEOUT_S = 25.0
_DIAL_TIMEOUT_S = 10.0
#: How often the agent looks for an invitation: at first, and once nobody came for a while.
_LOOK_S = (0.5, 3.0)
_EAGER_S = 60.0
_BLOCK_BYTES = 64 * 1024


class NotOurs(Exception):
    """Who is at the other end has not read the invitation."""


def proof(secret: bytes, who: bytes, login_nonce: bytes, agent_nonce: bytes) -> bytes:
    """What `who` (b"agent" or b"login") says to show that it knows the secret."""
    return hmac.new(secret, who + login_nonce + agent_nonce, hashlib.sha256).digest()


# -- the login host's side ------------------------------------------------------------


def meet(path: str, node: str) -> int:
    """Wait for the agent and carry bytes between it and our stdin and stdout; exit status."""
    listener = _listen(node)
    secret = os.urandom(32)
    host, port = listener.getsockname()[:2]
    text = json.dumps({"host": host, "port": port, "secret": secret.hex()}) + "\n"
    _write(path, text)
    try:
        peer = _accept(listener, secret)
    finally:
        listener.close()
        _remove(path, text)
    if peer is None:
        print(f"tunnelkit: the agent did not dial {host}:{port}", file=sys.stderr)
        return 1
    _carry(peer)
    return 0


def _listen(node: str) -> socket.socket:
    """A port on the one address by which `node` reaches this host."""
    address = _address_towards(node)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.bind((address, 0))
    listener.listen(128)
    return listener


def _address_towards(node: str) -> str:
    """Our address on the way to `node` (nothing is sent); where that is no name that we know, the
    address by which this host was reached itself."""
    with contextlib.suppress(OSError):
        for family, _, _, _, to in socket.getaddrinfo(node, 9, type=socket.SOCK_DGRAM):
            with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect(to)
                return str(probe.getsockname()[0])
    reached = os.environ.get("SSH_CONNECTION", "").split()
    return reached[2] if len(reached) == 4 else socket.gethostbyname(socket.gethostname())


def _write(path: str, text: str) -> None:
    """In place: a file that is replaced may be seen late over NFS."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW
    fd = os.open(path, flags, 0o600)
    try:
        os.fchmod(fd, 0o600)
        os.ftruncate(fd, 0)
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _remove(path: str, text: str) -> None:
    """Empty the invitation, unless another `meet` has written its own."""
    with contextlib.suppress(OSError):
        with open(path) as file:
            if file.read() != text:
                return
        os.truncate(path, 0)


def _accept(listener: socket.socket, secret: bytes) -> Optional[socket.socket]:
    """The agent's connection; None if it did not come, or nobody waits for it any more. Whoever
    dials is heard at once, and not for long: a stranger holds up nobody."""
    poll = select.poll()
    listener.setblocking(False)
    poll.register(listener, select.POLLIN)
    # Only its end: what the session says is meant for the agent.
    poll.register(0, 0)
    guests: Dict[int, _Guest] = {}
    deadline = time.monotonic() + _MEET_TIMEOUT_S
    try:
        while True:
            ends = [deadline, *(guest.deadline for guest in guests.values())]
            left_s = max(0.0, min(ends) - time.monotonic())
            events = dict(poll.poll(left_s * 1000 + 1))
            if 0 in events or time.monotonic() >= deadline:
                return None
            for fd, guest in list(guests.items()):
                if fd in events and guest.hear():
                    del guests[fd]
                    return guest.sock
                if guest.is_over or time.monotonic() >= guest.deadline:
                    poll.unregister(fd)
                    guests.pop(fd).sock.close()
            if listener.fileno() in events and len(guests) < _GUESTS:
                new = _Guest.receive(listener, secret)
                if new is not None:
                    guests[new.sock.fileno()] = new
                    poll.register(new.sock, select.POLLIN)
    finally:
        for guest in guests.values():
            guest.sock.close()


class _Guest:
    """Who has dialled, until it is known whether it is the agent."""

    def __init__(self, sock: socket.socket, secret: bytes) -> None:
        self.sock = sock
        self.deadline = time.monotonic() + _PROOF_TIMEOUT_S
        self.is_over = False
        self._secret = secret
        self._nonce = os.urandom(_NONCE_BYTES)
        self._answer = b""

    @classmethod
    def receive(cls, listener: socket.socket, secret: bytes) -> "Optional[_Guest]":
        """Accept a connection and challenge it; None if it is gone already."""
        try:
            sock, _ = listener.accept()
        except OSError:
            return None
        guest = cls(sock, secret)
        try:
            sock.setblocking(False)
            sock.sendall(guest._nonce)  # into an empty buffer
        except OSError:
            sock.close()
            return None
        return guest

    def hear(self) -> bool:
        """Take what it says. True: it is the agent, and has the login host's own proof."""
        wanted = _NONCE_BYTES + _PROOF_BYTES
        try:
            data = self.sock.recv(wanted - len(self._answer))
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        self._answer += data
        self.is_over = not data or len(self._answer) == wanted
        if len(self._answer) < wanted:
            return False
        theirs, said = self._answer[:_NONCE_BYTES], self._answer[_NONCE_BYTES:]
        if not hmac.compare_digest(said, proof(self._secret, b"agent", self._nonce, theirs)):
            return False
        try:
            self.sock.setblocking(True)
            self.sock.sendall(proof(self._secret, b"login", self._nonce, theirs))
            _tune(self.sock)
        except OSError:
            return False
        return True


def _carry(peer: socket.socket) -> None:
    """Bytes in both directions; ends with the first end that either side tells."""

    def upwards() -> None:
        with contextlib.suppress(OSError):
            while True:
                data = os.read(0, _BLOCK_BYTES)
                if not data:
                    break
                peer.sendall(data)
        with contextlib.suppress(OSError):
            peer.shutdown(socket.SHUT_RDWR)

    threading.Thread(target=upwards, daemon=True).start()
    with contextlib.suppress(OSError):
        while True:
            data = peer.recv(_BLOCK_BYTES)
            if not data:
                break
            view = memoryview(data)
            while len(view):
                view = view[os.write(1, view) :]


def _tune(sock: socket.socket) -> None:
    """No delays, and a peer that vanished is noticed within half a minute."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


# -- the agent's side -----------------------------------------------------------------


async def keep_dialling(
    path: str, has_link: Callable[[], bool], serve: Callable[[socket.socket], Awaitable[None]]
) -> None:
    """While there is no link, look for an invitation, dial, and `serve` the connection. Never
    returns."""
    eager_until = time.monotonic() + _EAGER_S
    done: Optional[str] = None
    while True:
        if has_link():
            eager_until = time.monotonic() + _EAGER_S
        else:
            told = _read_invitation(path)
            if told is not None and told[2] != done:
                done = told[2]
                sock = await _dial(*told)
                if sock is not None:
                    await serve(sock)
        await asyncio.sleep(_LOOK_S[time.monotonic() > eager_until])


def _read_invitation(path: str) -> Optional[Tuple[str, int, str]]:
    """Host, port and secret; None if there is none, or one that others could have written."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        status = os.fstat(fd)
        private = stat.S_ISREG(status.st_mode) and not status.st_mode & 0o077
        if status.st_uid != os.getuid() or not private:
            return None
        told = json.loads(os.read(fd, 4096))
        return str(told["host"]), int(told["port"]), str(told["secret"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    finally:
        os.close(fd)


async def _dial(host: str, port: int, secret: str) -> Optional[socket.socket]:
    """A connection to who wrote the invitation; None if it can't be had."""
    sock: Optional[socket.socket] = None
    try:
        sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        sock.setblocking(False)
        await asyncio.wait_for(_prove(sock, (host, port), bytes.fromhex(secret)), _DIAL_TIMEOUT_S)
        _tune(sock)
        return sock
    except (OSError, ValueError, NotOurs, asyncio.TimeoutError):
        if sock is not None:
            sock.close()
        return None


async def _prove(sock: socket.socket, address: Tuple[str, int], secret: bytes) -> None:
    loop = asyncio.get_running_loop()
    await loop.sock_connect(sock, address)
    nonce = await _receive(sock, _NONCE_BYTES)
    own = os.urandom(_NONCE_BYTES)
    await loop.sock_sendall(sock, own + proof(secret, b"agent", nonce, own))
    if not hmac.compare_digest(
        await _receive(sock, _PROOF_BYTES), proof(secret, b"login", nonce, own)
    ):
        raise NotOurs("a wrong proof")


async def _receive(sock: socket.socket, count: int) -> bytes:
    parts: List[bytes] = []
    while count:
        data = await asyncio.get_running_loop().sock_recv(sock, count)
        if not data:
            raise NotOurs("it hung up")
        parts.append(data)
        count -= len(data)
    return b"".join(parts)
