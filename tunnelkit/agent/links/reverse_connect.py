"""The reverse connection, where no route leads into the job: the agent dials the login host.

`meet FILE NODE` runs on the login host, tied to the session's ssh stream. It first receives a fresh
certificate with its key (one line, which went through ssh). It listens, and writes an invitation:
the address, the certificate, and a fresh secret (FILE, 0600, in the home that both hosts share; the
key stays out of it). The agent (`serve NAME --meet FILE`) checks for it while it has no link, and
dials, by TLS: it goes on only if it meets that very certificate. Then each proves to the other that
it can read the file, without sending the secret, and bytes go through.

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
import tempfile
import time
from typing import TYPE_CHECKING, Awaitable, Callable, List, NamedTuple, Optional, Set, Tuple

from tunnelkit.mux.fd_io import read_fd, write_fd
from tunnelkit.mux.tasks import cancel_all, first_of, start

if TYPE_CHECKING:
    import ssl

_NONCE_BYTES = 32
_PROOF_BYTES = 32
#: For TLS, and for the whole of the proof: who is slower is hung up on, and may dial again.
_TLS_S = 2.0
_PROOF_S = 1.0
#: So many strangers at once are heard; the next are hung up on.
_PEERS = 64
#: The session waits for the agent's hello a little longer than this.
_MEET_TIMEOUT_S = 25.0
_DIAL_TIMEOUT_S = 10.0
#: How often the agent looks for an invitation: at first, and once nobody came for a while.
_LOOK_S = (0.5, 3.0)
_EAGER_S = 60.0
_BLOCK_BYTES = 64 * 1024
_GREETING_BYTES = 16 * 1024
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"

Streams = Tuple[asyncio.StreamReader, asyncio.StreamWriter]


class UnknownPeer(Exception):
    """The peer has not read the invitation."""


def proof(secret: bytes, who: bytes, login_nonce: bytes, agent_nonce: bytes) -> bytes:
    """The bytes by which `who` (b"agent" or b"login") shows that it knows the secret."""
    return hmac.new(secret, who + login_nonce + agent_nonce, hashlib.sha256).digest()


# -- the login host's side ------------------------------------------------------------


def meet(path: str, node: str) -> int:
    """Wait for the agent and carry bytes between it and our stdin and stdout; exit status."""
    try:
        certificate, context = _told()
    except (OSError, ImportError, ValueError, KeyError, TypeError) as error:
        print(f"tunnelkit: no TLS for the agent's connection: {error}", file=sys.stderr)
        return 1
    for fd in (0, 1):
        os.set_blocking(fd, False)
    return asyncio.run(_Meeting(path, node, certificate, context).run())


def _told() -> Tuple[str, "ssl.SSLContext"]:
    """The certificate, and TLS with it, from the first line of stdin; what follows is meant
    for the agent and stays there."""
    import ssl

    line = b""
    while not line.endswith(b"\n"):
        data = os.read(0, 1)
        if not data or len(line) > _GREETING_BYTES:
            raise ValueError("no certificate came from the session")
        line += data
    identity = json.loads(line)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    # ssl reads it from a file only; this one is 0600, and gone at once.
    with tempfile.NamedTemporaryFile() as file:
        file.write((str(identity["certificate"]) + str(identity["key"])).encode())
        file.flush()
        context.load_cert_chain(file.name)
    return str(identity["certificate"]), context


class _Meeting:
    """One wait for the agent, with all who dial meanwhile."""

    def __init__(self, path: str, node: str, certificate: str, context: "ssl.SSLContext") -> None:
        self._path = path
        self._node = node
        self._certificate = certificate
        self._context = context
        self._secret = os.urandom(32)
        self._peers: Set[asyncio.StreamWriter] = set()
        self._came: asyncio.Future[Streams]

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        self._came = loop.create_future()
        # A stranger who speaks no TLS is no news.
        loop.set_exception_handler(lambda loop, context: None)
        listener = _listen(self._node)
        host, port = listener.getsockname()[:2]
        server = await asyncio.start_server(
            self._dialled, sock=listener, ssl=self._context, ssl_handshake_timeout=_TLS_S
        )
        invitation = {"host": host, "port": port, "certificate": self._certificate}
        text = json.dumps({**invitation, "secret": self._secret.hex()}) + "\n"
        _write(self._path, text)
        try:
            agent = await self._wait()
        finally:
            server.close()
            _remove(self._path, text)
            for peer in self._peers:
                peer.transport.abort()
        if agent is None:
            print(f"tunnelkit: the agent did not dial {host}:{port}", file=sys.stderr)
            return 1
        await _carry(*agent, 0, 1)
        return 0

    async def _wait(self) -> Optional[Streams]:
        """The agent's connection; None if it did not come, or nobody waits for it any more."""
        hung_up = asyncio.ensure_future(_hang_up())
        try:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(first_of(self._came, hung_up), _MEET_TIMEOUT_S)
            return self._came.result() if self._came.done() and not hung_up.done() else None
        finally:
            hung_up.cancel()

    async def _dialled(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._came.done() or len(self._peers) >= _PEERS:
            writer.transport.abort()
            return
        self._peers.add(writer)
        try:
            await asyncio.wait_for(_challenge(reader, writer, self._secret), _PROOF_S)
        except (OSError, UnknownPeer, asyncio.IncompleteReadError, asyncio.TimeoutError):
            writer.transport.abort()
        else:
            if self._came.done():
                writer.transport.abort()
            else:
                self._came.set_result((reader, writer))
        finally:
            self._peers.discard(writer)


async def _hang_up() -> None:
    """Return once nobody reads our stdout or writes to our stdin any more. Only that: what the
    session says is meant for the agent."""
    poll = select.poll()
    poll.register(0, 0)
    while not poll.poll(0):  # noqa: ASYNC110 - asyncio tells of bytes, not of the end alone
        await asyncio.sleep(0.1)


def _listen(node: str) -> socket.socket:
    """A port on the one address by which `node` reaches this host."""
    address = _address_towards(node)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.bind((address, 0))
    listener.listen(4)
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


async def _challenge(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, secret: bytes
) -> None:
    nonce = os.urandom(_NONCE_BYTES)
    writer.write(nonce)
    answer = await reader.readexactly(_NONCE_BYTES + _PROOF_BYTES)
    theirs, said = answer[:_NONCE_BYTES], answer[_NONCE_BYTES:]
    if not hmac.compare_digest(said, proof(secret, b"agent", nonce, theirs)):
        raise UnknownPeer("a wrong proof")
    writer.write(proof(secret, b"login", nonce, theirs))
    await writer.drain()


async def _carry(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, source: int, sink: int
) -> None:
    """Bytes between TLS and two descriptors (non-blocking); ends with the first end that either
    side tells."""
    _tune(writer.get_extra_info("socket"))

    async def upwards() -> None:
        while True:
            data = await read_fd(source, _BLOCK_BYTES)
            if not data:
                return
            writer.write(data)
            await writer.drain()

    async def downwards() -> None:
        while True:
            data = await reader.read(_BLOCK_BYTES)
            if not data:
                return
            await write_fd(sink, data)

    ways = [asyncio.ensure_future(upwards()), asyncio.ensure_future(downwards())]
    try:
        await first_of(*ways)
    finally:
        await cancel_all(*ways)
        writer.close()
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            await asyncio.wait_for(writer.wait_closed(), _TLS_S)
        writer.transport.abort()


def _tune(sock: socket.socket) -> None:
    """No delays, and a peer that vanished is noticed within half a minute."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


# -- the agent's side -----------------------------------------------------------------


class _Invitation(NamedTuple):
    host: str
    port: int
    certificate: bytes  # DER
    secret: bytes


async def keep_dialling(
    path: str, has_link: Callable[[], bool], serve: Callable[[socket.socket], Awaitable[None]]
) -> None:
    """While there is no link, look for an invitation, dial, and `serve` the connection. Never
    returns."""
    eager_until = time.monotonic() + _EAGER_S
    known: Optional[_Invitation] = None
    tried_until = 0.0
    carrying: Set[asyncio.Task[None]] = set()
    try:
        while True:
            if has_link():
                eager_until = time.monotonic() + _EAGER_S
            else:
                invitation = _read_invitation(path)
                if invitation != known:
                    known, tried_until = invitation, time.monotonic() + _MEET_TIMEOUT_S
                if invitation is not None and time.monotonic() < tried_until:
                    streams = await _dial(invitation)
                    if streams is not None:
                        tried_until = 0.0
                        near, far = socket.socketpair()
                        near.setblocking(False)
                        start(carrying, _carry_pair(*streams, far))
                        await serve(near)
            await asyncio.sleep(_LOOK_S[time.monotonic() > eager_until])
    finally:
        for task in carrying:
            task.cancel()


async def _carry_pair(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, far: socket.socket
) -> None:
    far.setblocking(False)
    with far:
        await _carry(reader, writer, far.fileno(), far.fileno())


def _read_invitation(path: str) -> Optional[_Invitation]:
    """None if there is none, or one that others could have written."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        import ssl

        status = os.fstat(fd)
        private = stat.S_ISREG(status.st_mode) and not status.st_mode & 0o077
        if status.st_uid != os.getuid() or not private:
            return None
        fields = json.loads(os.read(fd, _GREETING_BYTES))
        certificate = ssl.PEM_cert_to_DER_cert(str(fields["certificate"]))
        secret = bytes.fromhex(str(fields["secret"]))
        return _Invitation(str(fields["host"]), int(fields["port"]), certificate, secret)
    except (OSError, ImportError, ValueError, KeyError, TypeError):
        return None
    finally:
        os.close(fd)


async def _dial(invitation: _Invitation) -> Optional[Streams]:
    """A connection to the invitation's writer; None if none can be made."""
    writers: List[asyncio.StreamWriter] = []
    try:
        return await asyncio.wait_for(_prove(invitation, writers.append), _DIAL_TIMEOUT_S)
    except (OSError, ValueError, UnknownPeer, asyncio.IncompleteReadError, asyncio.TimeoutError):
        for writer in writers:
            writer.transport.abort()
        return None


async def _prove(
    invitation: _Invitation, opened: Callable[[asyncio.StreamWriter], None]
) -> Streams:
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    # No authority is asked, and no clock: it has to be the one certificate of the invitation,
    # whose key TLS has its holder prove.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    reader, writer = await asyncio.open_connection(
        invitation.host, invitation.port, ssl=context, server_hostname=""
    )
    opened(writer)
    if writer.get_extra_info("ssl_object").getpeercert(True) != invitation.certificate:
        raise UnknownPeer("another certificate")
    nonce = await reader.readexactly(_NONCE_BYTES)
    own = os.urandom(_NONCE_BYTES)
    writer.write(own + proof(invitation.secret, b"agent", nonce, own))
    said = await reader.readexactly(_PROOF_BYTES)
    if not hmac.compare_digest(said, proof(invitation.secret, b"login", nonce, own)):
        raise UnknownPeer("a wrong proof")
    return reader, writer
