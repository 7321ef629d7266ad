"""`relay NAME`: the ear of agent NAME on another node of its allocation.

The agent (relay_pool.py) starts it there inside the job and speaks the wire with it over stdin
and stdout. Debuggees of that node dial in here; each is passed on as a channel. It ends with
its stdin, on BYE, or on TERM, and leaves nothing behind.
"""

import asyncio
import contextlib
import os
import platform
import signal
import socket
import sys
import tty
from typing import TYPE_CHECKING, Coroutine, Dict, NamedTuple, Set

from tunnelkit.agent.links import socket_dir
from tunnelkit.agent.links.paced_mux import PacedMux
from tunnelkit.agent.processes import port_file
from tunnelkit.agent.processes.dial_in import DialIn, HeldPorts
from tunnelkit.agent.processes.peer_process import PeerProcess, identify, of_process
from tunnelkit.mux import rpc
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.fd_io import take_stdio, write_fd
from tunnelkit.mux.hello import take_hello
from tunnelkit.mux.splice import splice
from tunnelkit.mux.tasks import cancel_all, first_of, start
from tunnelkit.wire.endpoint import Endpoint
from tunnelkit.wire.errors import ChannelError, ProtocolError
from tunnelkit.wire.handshake import Status

if TYPE_CHECKING:
    from tunnelkit.messages import agent_calls as calls

#: A variable longer than this goes first when an identity is too large for a header.
_LONG_VARIABLE_CHARS = 1000
_HELLO_TIMEOUT_S = 60.0


class _Door(NamedTuple):
    """A loop's dial-in port on this node, and the file that tells it."""

    dialin: DialIn
    path: str

    def close(self, held: HeldPorts) -> None:
        """Nobody is sent here any more; what was may come late."""
        port_file.remove(self.path, self.dialin.port)
        held.add(self.dialin)


class Relay:
    """Serves one agent over one pair of descriptors. `run` returns when that is over."""

    def __init__(self, name: str) -> None:
        self._name = socket_dir.check_name(name)
        self._server_id = os.urandom(16)
        self._doors: Dict[int, _Door] = {}
        self._held = HeldPorts()
        self._tasks: Set[asyncio.Task[None]] = set()
        self._ending = asyncio.Event()
        self._mux = PacedMux(Endpoint(client=False), self._opened, self._over)

    async def run(self, from_agent: int, to_agent: int) -> None:
        """Serve until the link ends, the agent says BYE, or TERM comes.

        The caller owns both descriptors. Raises OSError or ProtocolError if what is at the
        other end is no agent.
        """
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._ending.set)
        os.set_blocking(from_agent, False)
        os.set_blocking(to_agent, False)
        with contextlib.suppress(OSError, socket_dir.NoSocketDirectory):
            port_file.sweep(self._name)
        ending = asyncio.ensure_future(self._ending.wait())
        try:
            hello, rest = await take_hello(from_agent, to_agent, self._server_id, _HELLO_TIMEOUT_S)
            answer = self._mux.hello(Status.FRESH, hello.client_id, self._server_id)
            await write_fd(to_agent, answer.encode())
            lost = self._mux.attach(from_agent, to_agent, hello, rest)
            await first_of(lost, ending)
        finally:
            for loop_id in list(self._doors):
                self._close(loop_id)
            self._held.close()
            self._mux.end("the relay ended")
            self._mux.detach("the relay ended")
            await cancel_all(ending, *self._tasks)
            loop.remove_signal_handler(signal.SIGTERM)

    def _opened(self, channel: Channel, header: Dict[str, object]) -> None:
        if header.get("type") == "rpc":
            self._spawn(rpc.RpcPeer(channel, self._handlers()).serve())
        else:
            channel.close({"error": f"a relay has no channel of type {header.get('type')!r}"})

    def _handlers(self) -> Dict[str, rpc.Handler]:
        return {
            "info": self._info,
            "dialin.open": self._dialin_open,
            "dialin.close": self._dialin_close,
            "signal": self._signal,
        }

    def _over(self, reason: str) -> None:
        self._ending.set()

    # -- calls ------------------------------------------------------------

    async def _info(self, params: "calls.Nothing") -> "calls.RelayInfo":
        return {
            "node": port_file.node_name(),
            "hostname": socket.gethostname(),
            "pid": os.getpid(),
            "python": platform.python_version(),
            "loops": {str(loop): door.dialin.port for loop, door in self._doors.items()},
            "refused_peers": sum(door.dialin.refused for door in self._doors.values()),
        }

    async def _dialin_open(self, params: "calls.OneLoop") -> "calls.DialinPort":
        loop_id = int(params["loop"])
        door = self._doors.get(loop_id)
        if door is None:
            dialin = DialIn(lambda sock: self._dialled_in(loop_id, sock))
            try:
                dialin.open()
                path = port_file.write(self._name, loop_id, dialin.port)
            except (OSError, socket_dir.NoSocketDirectory) as error:
                dialin.close()
                raise rpc.error(f"no dial-in port on {port_file.node_name()}: {error}") from None
            door = self._doors[loop_id] = _Door(dialin, path)
        return {"port": door.dialin.port}

    async def _dialin_close(self, params: "calls.OneLoop") -> None:
        self._close(int(params["loop"]))

    async def _signal(self, params: "calls.RelaySignal") -> None:
        """Only to what carries the loop's tag: a pid from another node proves nothing."""
        pid, tag = int(params["pid"]), str(params["tag"])
        if not tag or not _is_own(pid) or of_process(pid).tag != tag:
            raise rpc.error(f"no process {pid} of this loop on {port_file.node_name()}")
        number = getattr(signal, str(params["signal"]), None)
        if not isinstance(number, signal.Signals):
            raise rpc.error(f"no signal {params['signal']!r}")
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    # -- debuggees --------------------------------------------------------

    def _dialled_in(self, loop_id: int, sock: socket.socket) -> None:
        who = identify(sock)
        try:
            channel = self._open(loop_id, who)
        except ChannelError:
            sock.close()
            return
        self._spawn(splice(sock, channel, quickack=True, together=True))

    def _open(self, loop_id: int, who: PeerProcess) -> Channel:
        header = {"type": "debuggee", "loop": loop_id, "identity": who.to_json()}
        try:
            return self._mux.open(header)
        except ChannelError:
            short = {k: v for k, v in who.environ.items() if len(v) <= _LONG_VARIABLE_CHARS}
            return self._mux.open(dict(header, identity=who._replace(environ=short).to_json()))

    def _close(self, loop_id: int) -> None:
        door = self._doors.pop(loop_id, None)
        if door is not None:
            door.close(self._held)

    def _spawn(self, work: "Coroutine[object, object, None]") -> None:
        start(self._tasks, self._quietly(work))

    async def _quietly(self, work: "Coroutine[object, object, None]") -> None:
        with contextlib.suppress(OSError, rpc.RpcError):
            await work


def _is_own(pid: int) -> bool:
    try:
        return pid > 1 and os.stat(f"/proc/{pid}").st_uid == os.getuid()
    except OSError:
        return False


def main(name: str) -> int:
    """Run a relay on stdin and stdout; exit status."""
    from_agent, to_agent = take_stdio()
    if os.isatty(to_agent):
        # `srun --unbuffered` gives a terminal for stdout.
        tty.setraw(to_agent)
    # What Slurm or a user sends to the whole job (scancel --signal) is not meant for a relay.
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)

    async def serve() -> None:
        await Relay(name).run(from_agent, to_agent)

    try:
        asyncio.run(serve())
    except (OSError, ProtocolError, asyncio.TimeoutError) as error:
        print(f"tunnelkit: relay: {error or type(error).__name__}", file=sys.stderr)
        return 1
    return 0
