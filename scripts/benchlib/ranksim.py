"""1,024 ranks that answer from a record, behind the real session's and the real console's code.

The ranks' own answers cost next to nothing here, so these figures are the laptop's part: the
session's handlers, the stream between them, and the command. Nothing is written to a network.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Protocol, cast

from tunnelkit.cli.views.console_shell import ConsoleShell
from tunnelkit.debug.console.console import Console
from tunnelkit.debug.dap.messages import Message, dump, parse, section, text
from tunnelkit.debug.shared_debuggee import SharedDebuggee
from tunnelkit.debug.target_identity import TargetIdentity
from tunnelkit.mux.dap_framing import DapReader, frame
from tunnelkit.mux.tasks import cancel_all
from tunnelkit.session.handlers.console import ConsoleServer

if TYPE_CHECKING:
    from tunnelkit.session.session import Session

ROOT = "/home/ada/train"
_TORCH = "/opt/env/lib/python3.11/site-packages/torch"
_EACH_NODE = 8
_GOES_ON = ("configurationDone", "continue")
#: A stack as a training program has it in a collective, outermost first.
STACK = [
    [f"{ROOT}/train.py", 120, "<module>"],
    [f"{ROOT}/train.py", 101, "main"],
    *([f"{_TORCH}/nn/modules/module.py", 1500 + at, f"_call_{at}"] for at in range(14)),
    [f"{ROOT}/train.py", 70, "fit"],
    [f"{ROOT}/train.py", 88, "step"],
    [f"{_TORCH}/distributed/c10d_logger.py", 83, "wrapper"],
    [f"{_TORCH}/distributed/distributed_c10d.py", 3252, "all_reduce"],
]
LOADS = [*STACK[:2], [f"{ROOT}/data.py", 22, "__iter__"], [f"{ROOT}/data.py", 31, "load"]]


class Value(Protocol):
    """Returns the value of an expression in a rank."""

    def __call__(self, rank: int, expression: str) -> str: ...


@dataclass
class SimRank:
    """One rank's debuggee. held: "client" while it waits for a debugger, "stopped", or "". groups:
    its process groups, as the rank's code reports them. mute: it answers nothing."""

    rank: int
    size: int
    late: bool
    value: Value
    held: str = ""
    mute: bool = False
    asked: list[str] = field(default_factory=list)
    groups: list[Message] = field(default_factory=list)
    _looks: dict[str, str] = field(default_factory=dict)

    def answer(self, request: Message) -> Message:
        """Return the response."""
        command, arguments = text(request.get("command")), section(request, "arguments")
        self.asked.append(command)
        return {
            "type": "response",
            "seq": 1,
            "request_seq": request.get("seq"),
            "success": True,
            "command": command,
            "body": self._body(command, arguments),
        }

    def stop(self) -> Message:
        """Return the event that it has stopped, and stop."""
        self.held = "stopped"
        body: Message = {"threadId": 1, "reason": "breakpoint", "allThreadsStopped": True}
        return {"type": "event", "seq": 1, "event": "stopped", "body": body}

    def _body(self, command: str, arguments: Message) -> Message:
        if command == "stackTrace":
            return {"stackFrames": self._frames()}
        if command == "setBreakpoints":
            return {"breakpoints": [{"verified": True} for _ in _list(arguments["breakpoints"])]}
        if command in _GOES_ON:
            self.held = ""
        if command != "evaluate":
            return {}
        expression = text(arguments.get("expression"))
        if "_tk_rank_look" in expression:
            return {"result": self._look()}
        if ".value(" not in expression:
            return {"result": "tk"}
        said = self.value(self.rank, expression)
        return {"result": json.dumps({"kind": "value", "text": said, "size": len(said)})}

    def _frames(self) -> list[Message]:
        stack = LOADS if self.late else STACK
        return [
            {"id": at + 1, "name": name, "line": line, "column": 1, "source": {"path": path}}
            for at, (path, line, name) in enumerate(reversed(stack))
        ]

    def _look(self) -> str:
        if self.held not in self._looks:
            self._looks[self.held] = self._new_look()
        return self._looks[self.held]

    def _new_look(self) -> str:
        sequence = 1203 if self.late else 1204
        group = {"sequence": sequence, "operation": "" if self.late else "nccl:all_reduce"}
        return json.dumps(
            {
                "frames": LOADS if self.late else STACK,
                "instruction": 10,
                "held": self.held,
                "cpu_s": 1.0,
                "groups": [{**one, **group} for one in self.groups],
            }
        )


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


class Pipe:
    """One end of a stream in this process, with the part of a Channel that consoles use."""

    def __init__(self) -> None:
        self.other: Pipe | None = None
        self.is_over = False
        self.queued_bytes = 0
        self.sent = 0
        self._pieces: asyncio.Queue[bytes] = asyncio.Queue()

    async def read(self) -> bytes:
        """Return the next bytes; b"" at the end."""
        return await self._pieces.get()

    def write_nowait(self, data: bytes) -> None:
        """Send bytes."""
        assert self.other is not None
        self.sent += 1
        self.other._pieces.put_nowait(data)

    write_soon = write_nowait

    def is_read(self) -> bool:
        """Return True if the other end has taken all that was sent."""
        return self.other is not None and self.other._pieces.empty()

    def close(self, detail: object = None) -> None:
        """End both directions."""
        self.is_over = True
        if self.other is not None and not self.other.is_over:
            self.other.is_over = True
            self.other._pieces.put_nowait(b"")


def pipes() -> tuple[Pipe, Pipe]:
    """Two ends of a stream."""
    one, other = Pipe(), Pipe()
    one.other, other.other = other, one
    return one, other


class _DebuggeeChannel:
    """The channel of a rank's debugger: requests go to the rank, answers to the connection."""

    is_over = False

    def __init__(self, rank: SimRank) -> None:
        self.rank = rank
        self.shared: SharedDebuggee | None = None
        self._frames = DapReader()

    def write_soon(self, data: bytes) -> None:
        for body in self._frames.feed(data):
            if not self.rank.mute:
                self.send(self.rank.answer(parse(body)))

    def send(self, message: Message) -> None:
        """Let the debugger send a message, a turn of the loop later."""
        assert self.shared is not None
        take = self.shared.connection.from_debuggee
        asyncio.get_running_loop().call_soon(take, frame(dump(message)))


class SimTarget(SimpleNamespace):
    """A rank, with the part of a DebugTarget that looks and consoles use."""

    def begun_by_console(self) -> None:
        """It has begun."""
        self.attached = True


@dataclass(eq=False)
class _Run:
    """The run of the ranks, with the part of a Generation that is used."""

    number: int
    world_size: int
    targets: list[SimTarget]


class SimRanks:
    """The ranks of one run, and a session that has them. Made within an event loop."""

    def __init__(
        self, size: int, value: Value, late: frozenset[int] = frozenset(), held: str = ""
    ) -> None:
        self.ranks = [SimRank(rank, size, rank in late, value) for rank in range(size)]
        everyone = list(range(size))
        for one in self.ranks:
            one.held = held
            node = one.rank // _EACH_NODE * _EACH_NODE
            one.groups = [
                {"name": "0", "description": "default_pg", "ranks": everyone},
                {
                    "name": str(node + 1),
                    "description": "mesh_tp",
                    "ranks": everyone[node : node + _EACH_NODE],
                },
            ]
        self.channels = [_DebuggeeChannel(one) for one in self.ranks]
        self.targets = [_target(channel) for channel in self.channels]
        self.run = _Run(number=1, world_size=size, targets=list(self.targets))
        self.loop = SimpleNamespace(
            id=1,
            adopted_run=0,
            info={"shown": "srun python train.py", "argv": ["srun"]},
            ranked=True,
            changed=asyncio.Event(),
            first=lambda: self.run,
            state="running",
            debugs=True,
            keeps_failures=False,
        )
        mirrors = SimpleNamespace(all=[SimpleNamespace(local_root=ROOT, remote_root=ROOT)])
        session = SimpleNamespace(
            files=SimpleNamespace(place=lambda: None, mirrors=mirrors),
            loops=SimpleNamespace(
                get=lambda _id: SimpleNamespace(loop=self.loop), attachments=list
            ),
        )
        self.session = cast("Session", session)

    def stop(self, *numbers: int) -> None:
        """Let ranks stop at a breakpoint; none: all."""
        for number in numbers or range(len(self.ranks)):
            self.channels[number].send(self.ranks[number].stop())

    def wake(self) -> None:
        """Say that something about the run has changed, as the loop does for each rank."""
        changed, self.loop.changed = self.loop.changed, asyncio.Event()
        changed.set()


def _target(channel: _DebuggeeChannel) -> SimTarget:
    rank = channel.rank.rank
    shared = SharedDebuggee(channel)  # type: ignore[arg-type]
    channel.shared = shared
    shared.connection.configured = channel.rank.held != "client"
    node = f"node{rank // _EACH_NODE + 1}"
    who = TargetIdentity(20_000 + rank, node, rank, channel.rank.size, (), rank % _EACH_NODE)
    return SimTarget(
        who=who,
        asked=shared,
        armed=True,
        over=False,
        editor=None,
        debugged_pid=who.pid,
        attached=False,
    )


@asynccontextmanager
async def console(
    sim: SimRanks, show: Callable[[list[str]], None], columns: int = 80
) -> AsyncIterator[tuple[ConsoleShell, Pipe]]:
    """A console on them; and the session's end of its stream."""
    near, far = pipes()
    server = ConsoleServer(sim.session, sim.loop, far)  # type: ignore[arg-type]
    serving = asyncio.create_task(server.run())
    core = Console(columns=columns, local_source=lambda _path: None)
    shell = ConsoleShell(core, lambda lines: show(list(lines)))
    try:
        async with shell.running(near):  # type: ignore[arg-type]
            yield shell, far
    finally:
        near.close()
        await cancel_all(serving)
