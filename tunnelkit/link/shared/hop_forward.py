"""The fast route of a forward to a node: each leg encrypts once.

On the login host `ssh NODE` runs as a command of tk's. It opens, for each forward, a unix socket in
a 0700 directory there that leads to the node's port; the laptop's LocalForward ends at that socket.
No TCP port of the login host listens, so no other user of it can come in. The shell around that ssh
ends it, and removes the directory, when its stdin ends: with the link, however the link died.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import socket
from collections.abc import Sequence
from typing import Protocol

from tunnelkit.child_process import Lines
from tunnelkit.errors import ConnectionFailed
from tunnelkit.link.base import ByteStream
from tunnelkit.link.shared.ciphers import CIPHERS_SCRIPT
from tunnelkit.model import LocalForward

# $1 is the node, $2 the ConnectTimeout. All that is said goes through one fifo, in
# order; `1<>` opens it without waiting for the reader. The fifo ends when ssh has.
_SCRIPT = r"""
umask 077
trap '' PIPE
d=$(mktemp -d "${TMPDIR:-/tmp}/tk-chain.XXXXXXXX") || exit 97
echo "dir $d"
mkfifo "$d/out"
(cat "$d/out"; echo gone) &
CIPHERS
ssh -M -N -S "$d/m" -T -a -x -o BatchMode=yes -o ConnectTimeout="$2" -o ControlPersist=no \
  -o ServerAliveInterval=5 -o ServerAliveCountMax=3 -o ClearAllForwardings=yes \
  ${c:+"-oCiphers=$c"} -o LogLevel=INFO -o PermitLocalCommand=yes -o LocalCommand='echo ready' \
  -- "$1" </dev/null >"$d/out" 2>&1 &
p=$!
while read -r op number path target; do
  case $op in
  forward) ssh -F none -S "$d/m" -O forward -L "$path:$target" -- "$1" </dev/null 2>&1; s=$? ;;
  cancel) ssh -F none -S "$d/m" -O cancel -L "$path:$target" -- "$1" </dev/null 2>&1; s=$?
    rm -f -- "$path" ;;
  probe) ssh -F none -S "$d/m" -o ControlMaster=no -o ProxyCommand=/bin/false -W "$target" -- "$1" \
    </dev/null >/dev/null 2>&1; s=$? ;;
  esac 1<>"$d/out"
  echo "done $number $s" 1<>"$d/out"
done
kill "$p" 2>/dev/null
wait "$p"
rm -rf -- "$d"
""".replace("CIPHERS", CIPHERS_SCRIPT.strip())

_REQUEST_TIMEOUT_S = 15.0
#: Nothing listens there; how the refusal reads tells whether forwarding is allowed.
PROBE_TARGET = "127.0.0.1:1"
FORBIDDEN = "administratively prohibited"


class Streams(Protocol):
    """The login host, as either link has it."""

    async def open_stream(self, words: Sequence[str]) -> ByteStream:
        """Start a command; return its stdin and stdout. Raises ConnectionFailed."""
        ...


class HopForward:
    """One `ssh NODE` on the login host, and the unix sockets that it serves."""

    def __init__(self, node: str, login: Streams, *, connect_timeout_s: int) -> None:
        self.node = node
        self._login = login
        self._connect_timeout_s = connect_timeout_s
        self._stream: ByteStream | None = None
        self._sock: socket.socket | None = None
        self._reading: asyncio.Task[None] | None = None
        self._lines = Lines()
        self._directory = ""
        self._requests = 0
        self._one_at_a_time = asyncio.Lock()

    @property
    def is_up(self) -> bool:
        """True if the far ssh has not ended, as far as is known."""
        return self._reading is not None and not self._reading.done()

    @property
    def control_socket(self) -> str:
        """The socket of the far ssh master; it greets each client that connects."""
        return f"{self._directory}/m"

    async def open(self) -> None:
        """Start the far ssh. Raises ConnectionFailed if the login host can't `ssh NODE`
        without asking, or if the node forbids TCP forwarding."""
        words = ["sh", "-c", _SCRIPT, "tk-chain", self.node, str(self._connect_timeout_s)]
        self._stream = await self._login.open_stream(words)
        try:
            # A duplicate, so that the stream and the socket object each close their own.
            self._sock = socket.fromfd(self._stream.fileno(), socket.AF_UNIX, socket.SOCK_STREAM)
            self._sock.setblocking(False)
            self._reading = asyncio.create_task(self._read())
            line = await self._until("dir ", timeout_s=self._connect_timeout_s)
            self._directory = line.removeprefix("dir ")
            await self._until("ready", timeout_s=self._connect_timeout_s + 10.0)
            await self._check_allowed()
        except BaseException:
            await self.close()
            raise

    async def add(self, forward: LocalForward) -> str:
        """Open a unix socket on the login host that leads to the forward's target."""
        path = self._socket_of(forward)
        said = await self._request("forward", path, f"{forward.host}:{forward.port}")
        if not said[-1].endswith(" 0"):
            raise self._failed("\n".join(said[:-1]))
        return path

    async def remove(self, forward: LocalForward) -> None:
        """Take the socket of `add` away."""
        await self._request("cancel", self._socket_of(forward), f"{forward.host}:{forward.port}")

    async def wait(self) -> str:
        """Return, with the reason, once the far ssh is gone."""
        if self._reading is not None:
            await asyncio.wait({self._reading})
        return f"ssh from the login host to {self.node} ended"

    async def close(self) -> None:
        """End the far ssh and wait for it to have cleaned up. Idempotent."""
        if self._sock is not None:
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_WR)
        if self._stream is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stream.wait(), 5.0)
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        if self._sock is not None:
            self._sock.close()
        if self._stream is not None:
            await self._stream.close()
        self._stream = self._sock = None

    def _socket_of(self, forward: LocalForward) -> str:
        return f"{self._directory}/{forward.bind_port}"

    async def _check_allowed(self) -> None:
        said = await self._request("probe", "-", PROBE_TARGET)
        if any(FORBIDDEN in line for line in said):
            raise self._failed("sshd there forbids TCP forwarding")

    async def _request(self, operation: str, path: str, target: str) -> list[str]:
        """Send one line; the lines that came until it was done."""
        async with self._one_at_a_time:
            if self._sock is None or not self.is_up:
                raise self._failed("it is gone")
            self._requests += 1
            mark = self._lines.mark()
            text = f"{operation} {self._requests} {path} {target}\n"
            await asyncio.get_running_loop().sock_sendall(self._sock, text.encode())
            await self._until(f"done {self._requests} ", timeout_s=_REQUEST_TIMEOUT_S, mark=mark)
            return self._lines.since(mark)

    async def _until(self, text: str, *, timeout_s: float, mark: int = 0) -> str:
        """The first line with `text` after `mark`; ConnectionFailed if it does not come."""
        assert self._reading is not None
        seen = asyncio.create_task(self._lines.wait_for(text, mark=mark))
        try:
            await asyncio.wait(
                {seen, self._reading}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
            lines = self._lines.since(mark)
            for line in lines:
                if text in line:
                    return line
            said = [line for line in lines if not line.startswith(("dir ", "gone"))]
            raise self._failed("; ".join(said) or self._stream_says() or "no answer in time")
        finally:
            seen.cancel()
            await asyncio.gather(seen, return_exceptions=True)

    async def _read(self) -> None:
        """Collect what the far shell says; ends when it or its ssh has ended."""
        assert self._sock is not None
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            while data := await loop.sock_recv(self._sock, 65536):
                self._lines.feed(data)
                if "gone" in self._lines.since(max(0, self._lines.mark() - 5)):
                    return

    def _stream_says(self) -> str:
        return self._stream.diagnosis() if self._stream else ""

    def _failed(self, cause: str) -> ConnectionFailed:
        return ConnectionFailed(
            f"`ssh {shlex.quote(self.node)}` on the login host is of no use for forwards",
            cause=cause,
            transient=True,
        )
