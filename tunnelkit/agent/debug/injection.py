"""Brings debugpy into a Python that runs already: `debugpy --connect --pid`, from beside it.

An injection looks to its session as a loop of one generation that is never restarted. Its
dial-in port is held for as long as the process lives: what was injected may be read late, and
must find nobody else there.

    starting -> [pending ->] armed -> attached ... -> ended -> stopped
    starting -> failed -> stopped
"""

import asyncio
import os
import re
import shutil
import socket
import time
from typing import TYPE_CHECKING, Callable, Dict, List, NamedTuple, Optional, Tuple

from tunnelkit.agent.debug.fork_server_client import agent_path
from tunnelkit.agent.debug.loop_log import LoopLog
from tunnelkit.agent.debug.python_processes import start_time
from tunnelkit.agent.debug.rank_support import DialedProcess, visitor
from tunnelkit.agent.debug.standing import ask, is_standing
from tunnelkit.agent.processes.dial_in import DialIn, let_run
from tunnelkit.agent.processes.loop_run import LoopRun, spawn
from tunnelkit.agent.processes.peer_process import identify, of_process
from tunnelkit.agent.processes.table import Exit, ProcessTable
from tunnelkit.debuggee import ranks
from tunnelkit.debuggee.inject import INJECT
from tunnelkit.mux.tasks import cancel_all, first_of

if TYPE_CHECKING:
    from tunnelkit.messages.agent_calls import InjectionSpec, LoopInfo, RunEndInfo
    from tunnelkit.messages.loop_events import LoopState

#: gdb reads the symbols of all libraries first: half a minute with torch on a slow disk.
_INJECT_TIMEOUT_S = 120.0
#: From the injection to the connection; later means that the program is in native code.
_DIAL_PATIENCE_S = 5.0
_LOOK_S = 0.25
_GRACE_S = 2.0
_MAX_OUTPUT_BYTES = 256 * 1024
_GENERATION = 1
_CAP_SYS_PTRACE = 19
_FROM_THE_START = "or start it debuggable: tk loop"

OnDebuggee = Callable[["Injection", socket.socket, DialedProcess], None]


class Hindrance(NamedTuple):
    """The reason why a process can't be attached to, and what to do."""

    cause: str
    hint: str


class Injection:
    """One process that is given a debugger. `run` owns it until the process ends or `stop`;
    `hold` runs beside it.

    on_debuggee is called for what dials in: the process, later its children.
    """

    def __init__(
        self, loop_id: int, spec: "InjectionSpec", table: ProcessTable, on_debuggee: OnDebuggee
    ) -> None:
        self.id = loop_id
        self.spec = spec
        self.pid = int(spec["pid"])
        self.log = LoopLog()
        self.generation = _GENERATION
        self.state = "new"
        self.last_end: Optional[RunEndInfo] = None
        self._began = start_time(self.pid)
        self._table = table
        self._on_debuggee = on_debuggee
        self._dialin = DialIn(self._dialled)
        self._arrived = asyncio.Event()
        self._hung_up = asyncio.Event()
        self._stopped = asyncio.Event()
        self._over = asyncio.Event()
        #: It may know the port, and give it to its children.
        self._knows_port = False
        self._output = b""
        #: How it ended, if it is our child.
        self._how: Optional[Exit] = None

    # -- as a loop is seen ------------------------------------------------

    def describe(self) -> "LoopInfo":
        """The injection as a JSON object."""
        return {
            "id": self.id,
            "attach": self.pid,
            "argv": self.spec.get("command"),
            "shown": self.spec.get("shown"),
            "editor_port": self.spec.get("editor_port"),
            "debug": True,
            "preload": [],
            "ranks": None,
            "generation": self.generation,
            "state": self.state,
            "records": self.log.next_number,
            "pid": self.pid,
            "port": self._dialin.port,
            "last_end": self.last_end,
            "refused_peers": self._dialin.refused,
        }

    def attached(self, generation: int, who: str) -> None:
        """An editor is on it."""
        self._become({"event": "attached", "client": who})

    async def restart(self, reason: str, generation: Optional[int] = None) -> None:
        """Nothing: it is not ours to end."""

    async def refresh(self) -> List[int]:
        """Nothing is preloaded."""
        return []

    def stop(self, why: str = "stopped") -> None:
        """Let the process go; it runs on."""
        self._stopped.set()

    # -- life -------------------------------------------------------------

    async def run(self) -> None:
        """Inject, then wait for the process's end."""
        gone = asyncio.ensure_future(self._gone())
        try:
            self._dialin.open()
            self._become({"event": "starting", "pid": self.pid, "port": self._dialin.port})
            hindrance = await self._reach(gone)
            if hindrance is None:
                await self._live(gone)
            else:
                self._become({"event": "failed", "cause": hindrance.cause, "hint": hindrance.hint})
        except OSError as error:
            self._become({"event": "failed", "cause": str(error), "hint": _FROM_THE_START})
        finally:
            await cancel_all(gone)
            self._become({"event": "stopped"})
            self.log.close()
            self._over.set()

    async def hold(self) -> None:
        """Keep the port for as long as the process, or a child to come, may still dial it.

        Another owner of the port could debug them.
        """
        try:
            await self._over.wait()
            if self._knows_port:
                await self._gone()
        finally:
            self._dialin.close()

    async def _reach(self, gone: "asyncio.Future[None]") -> Optional[Hindrance]:
        if not is_standing(self.pid, of_process(self.pid).environ):
            return find_hindrance(self.pid, self.spec["python"]) or await self._inject(gone)
        self._knows_port = True
        lent = self.spec.get("pythonpath")
        port = self._dialin.port
        ask(self.pid, {"agent": agent_path(), "port": port, "pythonpath": lent})
        return None

    async def _inject(self, gone: "asyncio.Future[None]") -> Optional[Hindrance]:
        """Run the injector to its end; None if it may have worked."""
        self._knows_port = True
        run = spawn(self._table, 0, self._argv(), cwd="/", env=self._environment())
        run.begin(self._note_output, lambda _: None)
        stopped = asyncio.ensure_future(self._stopped.wait())
        patience = asyncio.ensure_future(asyncio.sleep(_INJECT_TIMEOUT_S))
        try:
            await first_of(run.process.exited, gone, stopped, patience)
            timed_out = patience.done() and not run.process.exited.done()
        finally:
            await cancel_all(stopped, patience)
            await self._end(run)
        if self._arrived.is_set() or self._stopped.is_set() or gone.done():
            return None
        if timed_out:
            return Hindrance(f"the injection took over {_INJECT_TIMEOUT_S:.0f} s", _FROM_THE_START)
        how = run.process.exited.result()
        text = self._output.decode("utf-8", "replace")
        if how.code == 0 and "ptrace: " not in text:
            return None
        return explain(text)

    async def _end(self, run: LoopRun) -> None:
        await self._table.end(run.process, _GRACE_S)
        await run.drain(0.5)
        await run.close()

    async def _live(self, gone: "asyncio.Future[None]") -> None:
        arrived = asyncio.ensure_future(self._arrived.wait())
        hung_up = asyncio.ensure_future(self._hung_up.wait())
        stopped = asyncio.ensure_future(self._stopped.wait())
        patience = asyncio.ensure_future(asyncio.sleep(_DIAL_PATIENCE_S))
        try:
            await first_of(arrived, gone, stopped, patience)
            if not arrived.done() and patience.done():
                self._become({"event": "pending"})
            await first_of(hung_up, gone, stopped)
            if hung_up.done() and not gone.done():
                # A process that ends hangs up first.
                await asyncio.wait([gone], timeout=1.0)
        finally:
            await cancel_all(arrived, hung_up, stopped, patience)
        self._note_end(gone.done())

    def _note_end(self, has_ended: bool) -> None:
        how: RunEndInfo = {"code": None, "signal": None}
        if self._how is not None:
            how = self._how.describe()
        why = "ended" if has_ended else "the debugger was taken off it"
        self.last_end = {**how, "why": why, "generation": _GENERATION}
        self.state = "ended"
        self.log.event({"event": "ended", "time": time.time(), **self.last_end})

    async def _gone(self) -> None:
        """Return when the process has ended."""
        process = self._table.of(self.pid)
        if process is not None:
            self._how = await asyncio.shield(process.exited)
            return
        # A process that is not our child gives no event when it ends.
        while self._began and start_time(self.pid) == self._began:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_S)

    # -- the injector -----------------------------------------------------

    def _argv(self) -> List[str]:
        address = f"127.0.0.1:{self._dialin.port}"
        words = [agent_path(), "--connect", address, "--pid", str(self.pid)]
        return [self.spec["python"], "-c", INJECT, *words]

    def _environment(self) -> Dict[str, str]:
        """The process's own, so that the same packages are found."""
        env = dict(of_process(self.pid).environ)
        for name in (ranks.VARIABLE, "DEBUGPY_EXTRA_ARGV", "PYTHONINSPECT", "PYTHONSTARTUP"):
            env.pop(name, None)
        env["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"
        if self.spec.get("pythonpath"):
            env["PYTHONPATH"] = str(self.spec["pythonpath"])
        env["PATH"] = search_path(env)
        if not shutil.which("gdb", path=env["PATH"]):
            env["PYDEVD_ATTACH_PREFER_LLDB"] = "1"
        return env

    def _note_output(self, kind: int, data: bytes) -> None:
        self._output = (self._output + data)[-_MAX_OUTPUT_BYTES:]

    def _dialled(self, sock: socket.socket) -> None:
        who = identify(sock, [self.pid])
        if who.pid != self.pid and self.pid not in who.ancestors:
            sock.close()
            return
        if self._stopped.is_set():
            let_run(sock)
            return
        if who.pid == self.pid and not self._arrived.is_set():
            self._arrived.set()
            self._become({"event": "armed", "pid": self.pid})
        self._on_debuggee(self, sock, visitor(who))

    def hung_up(self, who: DialedProcess) -> None:
        """The connection of what had dialled in is over."""
        if who.identity.pid == self.pid:
            self._hung_up.set()

    def _become(self, state: "LoopState") -> None:
        self.state = state["event"]
        self.log.event({"generation": _GENERATION, "time": time.time(), **state})


def search_path(environ: Dict[str, str]) -> str:
    """The directories to search for gdb: the process's PATH (`module load`), then this one's."""
    entries = [environ.get("PATH", ""), os.environ.get("PATH", os.defpath)]
    return os.pathsep.join(entry for entry in entries if entry)


def find_hindrance(pid: int, python: str) -> Optional[Hindrance]:
    """A known reason why the attach would fail, found before anything is tried."""
    scope = _ptrace_scope()
    if scope == 3 or (scope > 0 and not _may_trace()):
        return Hindrance(
            f"this node lets no process look into another (kernel.yama.ptrace_scope = {scope})",
            "an administrator can set it to 0: sysctl kernel.yama.ptrace_scope=0; "
            + _FROM_THE_START,
        )
    if _version(python) >= (3, 14):
        return None
    path = search_path(dict(of_process(pid).environ))
    if shutil.which("gdb", path=path) or shutil.which("lldb", path=path):
        return None
    return _NO_GDB


_NO_GDB = Hindrance(
    "neither gdb nor lldb is on this node, and before Python 3.14 nothing else can reach into a "
    "running one",
    "module load gdb, or conda install -c conda-forge gdb, where the program is started; "
    + _FROM_THE_START,
)


def explain(output: str) -> Hindrance:
    """The output of an injector that failed, as one line."""
    if "ptrace: Operation not permitted" in output or "PermissionError" in output:
        return Hindrance(
            "the system forbids to look into it (ptrace: Operation not permitted)",
            "in a container it needs --cap-add=SYS_PTRACE; a program may also have forbidden it "
            "itself (prctl); " + _FROM_THE_START,
        )
    if re.search(r"(gdb|lldb): (command )?not found", output):
        return _NO_GDB
    if "No module named debugpy" in output:
        return Hindrance("its interpreter has no debugpy", "pip install debugpy there")
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return Hindrance(lines[-1][:300] if lines else "the injector said nothing", _FROM_THE_START)


def _ptrace_scope() -> int:
    try:
        with open("/proc/sys/kernel/yama/ptrace_scope", "rb") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0


def _may_trace() -> bool:
    """True with CAP_SYS_PTRACE."""
    try:
        with open("/proc/self/status") as file:
            for line in file:
                if line.startswith("CapEff:"):
                    return bool(int(line.split()[1], 16) >> _CAP_SYS_PTRACE & 1)
    except (OSError, ValueError):
        pass
    return False


def _version(python: str) -> Tuple[int, int]:
    """By the name of the file that a Python's path leads to; (0, 0) if that tells nothing."""
    found = re.search(r"python(\d+)\.(\d+)", os.path.basename(os.path.realpath(python)))
    return (int(found[1]), int(found[2])) if found else (0, 0)
