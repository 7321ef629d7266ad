"""The agent's calls: the parameters and the answer of each.

`ask` checks the answer: a node may send anything. The agent converts the parameters that it uses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, NotRequired, Protocol, TypedDict, TypeGuard, TypeVar

from tunnelkit.errors import TunnelkitError
from tunnelkit.messages.json_types import guard, has_type

P = TypeVar("P", bound=Mapping[str, object])
A = TypeVar("A")


class Nothing(TypedDict):
    """No parameters."""


# -- the agent itself -----------------------------------------------------------


class AgentInfo(TypedDict):
    """An agent. The one without an allocation (agent/file_agent.py) has fewer fields.

    network: its network namespace. started: a time of its clock.
    """

    version: str
    node: str
    hostname: str
    pid: int
    python: str
    executable: str
    home: str
    name: NotRequired[str]
    network: NotRequired[str]
    job_id: NotRequired[str | None]
    started: NotRequired[float]
    pythonpath: NotRequired[str | None]
    cuda_visible_devices: NotRequired[str | None]


class Shutdown(TypedDict):
    """End all processes, and the agent."""

    reason: str


class PeerStart(TypedDict):
    """Have an agent on another node of the allocation."""

    node: str


class PeerAgent(TypedDict):
    """The agent on another node."""

    name: str
    pid: int


class HostPort(TypedDict):
    """An address as the node sees it."""

    host: str
    port: int


# -- processes ------------------------------------------------------------------


class Command(TypedDict):
    """A command. env: added to the agent's."""

    argv: list[str]
    cwd: NotRequired[str]
    env: NotRequired[dict[str, str]]


class ExecSignal(TypedDict):
    """A signal, such as SIGINT, for the process behind an exec channel."""

    channel: int
    signal: str


class ExecResize(TypedDict):
    """The new size of the terminal of an exec channel."""

    channel: int
    rows: int
    cols: int


# -- loops ----------------------------------------------------------------------


class Ranks(TypedDict):
    """The ranks of a loop. only: those to debug, None for all. collectives: "keep" leaves torch's
    timeouts as they are."""

    only: list[int] | None
    collectives: NotRequired[str]


class Together(TypedDict):
    """A loop with parts on several nodes. name: the same on all of them."""

    name: str
    nodes: int


class LoopSpec(Command):
    """A loop's command.

    debug: it dials in and waits for an editor. grace_s: from TERM to KILL. interpreter, words: a
    Python program, run by debugpy with these arguments. standby: keep the next debuggee ready.
    preload: modules to import once for all. once: it ends with its first run. shown (the command as
    the user typed it), editor_port and reload: kept for a later session. together: the loop has
    parts on several nodes, and each run begins with `LOOP_BEGIN`.
    defaults: variables for an environment that has none of that name; given: those that were used.
    expands: the words are a container's command, and `$(NAME)` in it a variable of its environment.
    """

    debug: bool
    interpreter: list[str]
    words: list[str]
    standby: bool
    preload: list[str]
    ranks: Ranks | None
    post_mortem: bool
    reload: bool
    once: bool
    shown: str
    editor_port: int
    grace_s: NotRequired[float]
    together: NotRequired[Together]
    defaults: NotRequired[dict[str, str]]
    given: NotRequired[list[str]]
    expands: NotRequired[bool]


class AttachTarget(TypedDict):
    """A process to bring a debugger into. pythonpath: where debugpy is, if it has none. first: as
    for `AttachFind`."""

    pid: int
    shown: str
    pythonpath: str | None
    first: NotRequired[int]


class AttachSpec(AttachTarget):
    """The same with the session's port for editors."""

    editor_port: int


class InjectionSpec(AttachSpec):
    """An AttachSpec with what the agent knows. python: an interpreter like the process's own."""

    python: str
    command: list[str]


class RunEndInfo(TypedDict, total=False):
    """The end of a run. why: "ended", or who ended it. error: it could not be started. waited_s:
    how long it waited for an editor. ahead: its turn had not come. oom_kills: processes that the
    kernel killed for memory meanwhile, in the whole job or pod."""

    code: int | None
    signal: str | None
    duration_s: float
    peak_rss_bytes: int
    oom_kills: int
    waited_s: float | None
    error: str
    why: str
    generation: int
    ahead: bool


class LoopInfo(TypedDict):
    """A loop of the agent. attach: the process, if it is an attached one. records: the number of
    those in its log so far."""

    id: int
    debug: bool
    editor_port: int | None
    argv: NotRequired[list[str] | None]
    shown: NotRequired[str | None]
    attach: NotRequired[int]
    preload: NotRequired[list[str]]
    ranks: NotRequired[Ranks | None]
    post_mortem: NotRequired[bool]
    reload: NotRequired[bool]
    once: NotRequired[bool]
    generation: NotRequired[int]
    state: NotRequired[str]
    records: NotRequired[int]
    pid: NotRequired[int | None]
    port: NotRequired[int]
    last_end: NotRequired[RunEndInfo | None]
    refused_peers: NotRequired[int]
    together: NotRequired[Together | None]
    given: NotRequired[list[str]]


class OneLoop(TypedDict):
    """A loop, by its id."""

    loop: int


class LoopBegin(OneLoop):
    """The runs up to this generation may begin. now: without the pause after a failure."""

    generation: int
    now: bool


class LoopFail(OneLoop):
    """End that generation as one that has failed: its part on another node has."""

    generation: int
    reason: str


class LoopRestart(OneLoop):
    """End the generation, if it is this one; None: whichever runs."""

    reason: str
    generation: int | None


class LoopAttached(OneLoop):
    """An editor is on this generation's debuggee."""

    generation: int
    client: str


class AttachFind(TypedDict, total=False):
    """The Pythons of the node, or the process with this pid alone. first: the pid of the first
    node's agent: what it has started there may have ranks here."""

    pid: int
    first: int


#: The `run` of a process that tk has not started.
JOBS_OWN = "-"


class PythonInfo(TypedDict):
    """A process on the node. python: "" if it is no Python. launcher: it starts others. why_not:
    why no debugger can be attached; "" if one can. local: its rank on the node. run: the tag of
    the command that it belongs to; "": it stands at an exception in the job's own script; "-": the
    job or pod runs it by itself. ancestors: pids from its parent up."""

    pid: int
    node: str
    rank: int | None
    local: int
    run: str
    ancestors: list[int]
    command: list[str]
    python: str
    launcher: bool
    why_not: str


# -- files, beside the channels of the mirror (wire/PROTOCOL.md) -----------------


class Expected(TypedDict):
    """Files below a remote root, and the sha256 of each."""

    root: str
    expected: dict[str, str]


# -- relays on other nodes, which the agent calls -------------------------------


class RelayInfo(TypedDict):
    """A relay. loops: its dial-in ports, by loop."""

    node: str
    hostname: str
    pid: int
    python: str
    loops: dict[str, int]
    refused_peers: int


class DialinPort(TypedDict):
    """The port of a relay's node for its debuggees."""

    port: int


class RelaySignal(TypedDict):
    """A signal for a process that carries TK_PROCESS=`tag`."""

    pid: int
    signal: str
    tag: str


# -- the calls ------------------------------------------------------------------


class Caller(Protocol):
    """A client of an agent."""

    async def call(self, method: str, **params: object) -> object:
        """Call the agent. Raises TunnelkitError."""
        ...


@dataclass(frozen=True)
class AgentCall(Generic[P, A]):
    """A call of the agent, with parameters `P` and an answer `A`."""

    name: str
    fits: Callable[[object], TypeGuard[A]]

    async def ask(self, agent: Caller, params: P) -> A:
        """Make the call. Raises TunnelkitError, also for an answer of another type."""
        answer = await agent.call(self.name, **params)
        if self.fits(answer):
            return answer
        raise TunnelkitError(
            f"the agent's answer to {self.name!r} can't be read",
            hint="is it of another version? tk down, then tk up",
        )


def _is_code(value: object) -> TypeGuard[int | None]:
    return has_type(value, int | None)


def _are_numbers(value: object) -> TypeGuard[list[int]]:
    return has_type(value, list[int])


def _are_processes(value: object) -> TypeGuard[list[PythonInfo]]:
    return has_type(value, list[PythonInfo])


def _are_paths(value: object) -> TypeGuard[list[str]]:
    return has_type(value, list[str])


def _are_loops(value: object) -> TypeGuard[list[LoopInfo]]:
    return has_type(value, list[LoopInfo])


INFO = AgentCall[Nothing, AgentInfo]("info", guard(AgentInfo))
SHUTDOWN = AgentCall[Shutdown, object]("shutdown", guard(object))
PEER_START = AgentCall[PeerStart, PeerAgent]("peer.start", guard(PeerAgent))
#: Does somebody accept connections there?
TCP_LISTENING = AgentCall[HostPort, bool]("tcp.listening", guard(bool))
#: The exit code of a short command; None if it can't be started.
EXEC_PROBE = AgentCall[Command, int | None]("exec.probe", _is_code)
EXEC_SIGNAL = AgentCall[ExecSignal, object]("exec.signal", guard(object))
EXEC_RESIZE = AgentCall[ExecResize, object]("exec.resize", guard(object))
ATTACH_FIND = AgentCall[AttachFind, list[PythonInfo]]("attach.find", _are_processes)
ATTACH_START = AgentCall[AttachSpec, LoopInfo]("attach.start", guard(LoopInfo))
LOOP_START = AgentCall[LoopSpec, LoopInfo]("loop.start", guard(LoopInfo))
LOOP_LIST = AgentCall[Nothing, list[LoopInfo]]("loop.list", _are_loops)
LOOP_BEGIN = AgentCall[LoopBegin, object]("loop.begin", guard(object))
LOOP_FAIL = AgentCall[LoopFail, object]("loop.fail", guard(object))
#: Have the debuggees offered; how many wait.
LOOP_CLAIM = AgentCall[OneLoop, int]("loop.claim", guard(int))
LOOP_RESTART = AgentCall[LoopRestart, object]("loop.restart", guard(object))
#: Compare what was preloaded with the disk; the generations that end as it has changed.
LOOP_REFRESH = AgentCall[OneLoop, list[int]]("loop.refresh", _are_numbers)
LOOP_STOP = AgentCall[OneLoop, object]("loop.stop", guard(object))
LOOP_ATTACHED = AgentCall[LoopAttached, object]("loop.attached", guard(object))
#: The paths whose content differs.
MIRROR_DIFFERING = AgentCall[Expected, list[str]]("mirror.differing", _are_paths)
