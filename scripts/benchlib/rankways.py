"""Many ranks to look at: the program, tk's two consoles on it, and the recipe with py-spy."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from benchlib.rig import TK, Rig, background, wait_until
from tunnelkit import lab
from tunnelkit.cli.views.console_files import new_core
from tunnelkit.cli.views.console_shell import ConsoleShell
from tunnelkit.debug.console.line_results import LineResult
from tunnelkit.demo.dap_client import DapClient
from tunnelkit.errors import TunnelkitError
from tunnelkit.session.runtime import control_client
from tunnelkit.session.runtime.blocking_client import ask
from tunnelkit.session.runtime.control_answers import RanksAnswer
from tunnelkit.session.runtime.control_calls import ConsoleStream, Ranks
from tunnelkit.session.runtime.paths import SessionPaths, session_paths

PROGRAM = "ranks.py"
#: Stops at STOP_LINE and can be stepped as long as nobody makes the file `sleep`; then it sleeps.
_SOURCE = """import os
import time

def step(total):
    total += 1
    total += 2
    return total

total = 0
while not os.path.exists("sleep"):
    total = step(total)
while True:
    time.sleep(600)
"""
STOP_LINE = 5
_RECIPE = "xargs -n1 {py_spy} dump --pid < pids-$SLURMD_NODENAME"
_STARTS_S_A_RANK = 6.0
_ANSWERS_S = 60.0
_ADAPTERS = b"tunnelkit.debug.adapter.adapter_server"


@dataclass(frozen=True)
class Memory:
    """Proportional set sizes on the laptop's side. adapters: processes, the one that forks them
    included."""

    session_bytes: int
    adapters_bytes: int
    adapters: int

    @property
    def bytes(self) -> int:
        return self.session_bytes + self.adapters_bytes


def memory(rig: Rig, pid: int) -> Memory:
    """Memory of the session `pid`, and of its adapters, which are nobody's children."""
    mark = f"TK_RUNTIME_DIR={rig.environ['TK_RUNTIME_DIR']}".encode()
    adapters = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = process.joinpath("cmdline").read_bytes().split(b"\0")
            if _ADAPTERS in words and mark in process.joinpath("environ").read_bytes().split(b"\0"):
                adapters.append(int(process.name))
    return Memory(pss_bytes(pid), sum(map(pss_bytes, adapters)), len(adapters))


def pss_bytes(pid: int | str) -> int:
    """Proportional set size of a process, by its pid or `self`."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def cpu_s(pid: int) -> float:
    """CPU seconds of one process's living threads."""
    stats = (path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/schedstat"))
    return sum(int(text.split()[0]) for text in stats) / 1e9


def control_paths(rig: Rig) -> SessionPaths:
    """Paths of the session, among them its control socket; the environment says where they are."""
    kept = dict(os.environ)
    os.environ.update(rig.environ)
    try:
        return session_paths(rig.project)
    finally:
        os.environ.clear()
        os.environ.update(kept)


def look(paths: SessionPaths) -> RanksAnswer:
    """Ask all ranks once where they are."""
    return ask(paths, Ranks(gap_s=0.0))


@contextmanager
def looping(rig: Rig, paths: SessionPaths, ranks: int) -> Iterator[None]:
    """`tk loop srun -n RANKS` while the context lasts; entered once all ranks wait."""
    (rig.project / PROGRAM).write_text(_SOURCE)
    null = subprocess.DEVNULL
    argv = [TK, "loop", "srun", "-n", str(ranks), "python", PROGRAM]

    def all_wait() -> bool:
        time.sleep(0.5)  # every question costs them something
        with suppress(TunnelkitError):
            samples = look(paths)["looks"][-1]["samples"]
            return len(samples) == ranks and all(one["state"] == "waiting" for one in samples)
        return False

    with background(argv, cwd=rig.project, env=rig.environ, stdout=null, stderr=null):
        patience_s = 60.0 + _STARTS_S_A_RANK * ranks
        wait_until(all_wait, f"{ranks} ranks", timeout_s=patience_s)
        yield
    wait_until(lambda: not rig.status()["loops"], "the end of tk loop", timeout_s=60.0)


@asynccontextmanager
async def console(paths: SessionPaths) -> AsyncIterator[ConsoleShell]:
    """A console, as `tk console` is one."""
    shell = ConsoleShell(new_core(), lambda _lines: None)
    async with (
        control_client.connect(paths) as session,
        shell.running(session.open(ConsoleStream(loop=None))),
    ):
        yield shell


async def answered(shell: ConsoleShell, line: str) -> LineResult:
    """Give a console a line. Raises RuntimeError unless every rank has answered it."""
    async with asyncio.timeout(_ANSWERS_S):
        await shell.give(line, last=True)
    result = shell.results[-1]
    if not result.all_answered:
        raise RuntimeError(f"{line!r}: {result.refusal or result.unanswered}")
    return result


async def stand(shell: ConsoleShell, paths: SessionPaths, ranks: int) -> None:
    """Let all ranks run to the breakpoint. Raises RuntimeError if they don't come to it.

    Where they are many more than the CPUs, one line is not patient enough for all of them.
    """
    ends = time.monotonic() + _ANSWERS_S + ranks
    await answered(shell, f"b {PROGRAM}:{STOP_LINE}")
    while (states := await asyncio.to_thread(_states, paths)) != ["stopped"] * ranks:
        if time.monotonic() > ends:
            raise RuntimeError(f"the ranks did not all stop at the breakpoint: {states}")
        if "waiting" in states:
            await shell.give("cast ranks(waiting) c", last=True)
        await asyncio.sleep(0.5)


def _states(paths: SessionPaths) -> list[str]:
    return [one["state"] for one in look(paths)["looks"][-1]["samples"]]


class Editor:
    """An editor on rank 0, which stands."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._client = DapClient("bench")
        self._thread = 0

    async def attach(self) -> None:
        """F5."""
        await self._client.connect(self._rig.debug_port)
        mappings = [
            {"localRoot": str(self._rig.project), "remoteRoot": str(self._rig.remote_project)}
        ]
        await self._client.attach({}, path_mappings=mappings)
        self._thread = int((await self._client.wait_event("stopped"))["threadId"])

    async def step_ms(self) -> float:
        """Step over; the time to the stop."""
        start = time.perf_counter()
        stepping = asyncio.create_task(self._client.request("next", threadId=self._thread))
        await self._client.wait_event("stopped")
        took_ms = (time.perf_counter() - start) * 1e3
        await stepping
        return took_ms

    async def close(self) -> None:
        """Hang up."""
        await self._client.close()


# -- without tk -----------------------------------------------------------------------------------


def first_sight(rig: Rig, ranks: int) -> None:
    """`tk ranks` on a terminal of its own, until it shows where all ranks are."""
    master, slave = os.openpty()
    process = subprocess.Popen(
        [TK, "ranks"], cwd=rig.project, env=rig.environ, stdin=slave, stdout=slave, stderr=slave
    )
    os.close(slave)
    seen = b""
    try:
        while f"{ranks} ranks on".encode() not in seen:
            seen += os.read(master, 65536)
    finally:
        process.terminate()
        process.wait()
        os.close(master)


def py_spy() -> Path | None:
    """The program, where it is installed."""
    # `pip install --target` puts programs into the packages' own directory.
    beside = [str(Path(sys.executable).parent), f"{sysconfig.get_path('purelib')}/bin"]
    found = shutil.which("py-spy", path=os.pathsep.join([*beside, os.environ.get("PATH", "")]))
    return Path(found) if found else None


class Recipe:
    """`srun --overlap` on both nodes, which runs `py-spy dump` for each rank there, and the files
    that it writes. It gets the pids for nothing."""

    def __init__(self, rig: Rig, program: Path, job: str, answer: RanksAnswer) -> None:
        self._home = rig.info.home
        self._on_login = lab.on("login", rig.info.dir)
        inner = _RECIPE.format(py_spy=shlex.quote(str(program)))
        self._srun = (
            f"cd {shlex.quote(str(self._home))} && exec srun --jobid={job} --overlap --nodes=2 "
            f"--ntasks-per-node=1 --cpus-per-task=1 --output=trace-%N.out "
            f"sh -c {shlex.quote(inner)}"
        )
        self._ranks = 0
        pids: dict[str, list[str]] = {}
        for one in answer["looks"][-1]["samples"]:
            pids.setdefault(one["node"], []).append(str(one["pid"]))
            self._ranks += 1
        for node, found in pids.items():
            (self._home / f"pids-{node}").write_text("\n".join(found) + "\n")

    def run(self) -> None:
        """Run it and read what it has written. Raises RuntimeError unless every rank is there."""
        done = subprocess.run(
            [*self._on_login, "sh", "-c", self._srun],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300.0,
            check=False,
        )
        text = "".join(path.read_text() for path in sorted(self._home.glob("trace-*.out")))
        found = text.count("Process ")
        if done.returncode or found != self._ranks:
            raise RuntimeError(
                f"srun and py-spy: {found} of {self._ranks}, {done.stderr.strip()[-500:]}"
            )

    def run_twice(self) -> None:
        """Run it, and again a second after it has begun: who moves is known by two looks only."""
        begun_s = time.monotonic()
        self.run()
        time.sleep(max(0.0, begun_s + 1.0 - time.monotonic()))
        self.run()
