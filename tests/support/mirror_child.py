"""A mirror in a process of its own, which a test may kill; and the test's hold on it.

`python -m tests.support.mirror_child SSHD_DIR PORT LOCAL HOME STATE AGENT_DIR AGENT_NAME BIG_BYTES`
says one line of JSON when it has started and one for each line that it is told: `barrier SECONDS`,
`resync`, `quit`. An empty AGENT_NAME: all goes by rsync; else an agent of that name is started when
there is none, also when it was killed, and it outlives this process. Files of more than BIG_BYTES
are sent as big ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import secrets
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.support import processes
from tests.support.mirror_rig import Node, Rig, RigHost
from tests.support.mirror_sshd import Sshd, SshRemote, descendants
from tunnelkit.errors import TunnelkitError
from tunnelkit.mirror.agent import batch_reader
from tunnelkit.mirror.mirror import Mirror
from tunnelkit.mirror.tree import scanner
from tunnelkit.model import MirrorSpec
from tunnelkit.session.files.file_agents import HeldFileAgent

_PATIENCE_S = 150.0
#: Small trees, too, are sent while they are looked at.
_FOUND_PATHS = 2


class Child:
    """The mirror of a rig, in another process. Start it, ask it, kill it, `close` it."""

    def __init__(self, rig: Rig, *, big_bytes: int = batch_reader.WHOLE_BYTES) -> None:
        self._agent_name = f"child-{os.getpid()}-{secrets.token_hex(4)}" if rig.node else ""
        words = (rig.sshd.directory, rig.sshd.port, rig.local, rig.home, rig.state)
        agent = (rig.home.with_name("child's agent"), self._agent_name)
        self._argv = [sys.executable, "-m", __name__, *map(str, (*words, *agent, big_bytes))]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns once the first copy is there."""
        self._process = subprocess.Popen(
            self._argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
        )
        answer = self._answer()
        assert answer == {"started": True}, answer

    def ask(self, line: str) -> dict[str, Any]:
        """Its answer; AssertionError if it says that something failed."""
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()
        answer = self._answer()
        assert "error" not in answer, f"{line}: {answer['error']}"
        return answer

    def kill(self) -> None:
        """SIGKILL, in the middle of whatever it does. What it has started lives on a little."""
        assert self._process is not None
        left = descendants(self._process.pid)
        self._process.kill()
        self._ended()
        self._orphans(left)

    def kill_agent(self) -> int:
        """SIGKILL to the agent; how many processes of it there were."""
        if not self._agent_name:
            return 0
        own = self._process.pid if self._process is not None else 0
        found = [one for one in processes.look().values() if self._agent_name in one.argv]
        return processes.kill([one for one in found if one.pid != own])

    def close(self) -> None:
        """End it and its agent, in whatever state they are."""
        self._end()
        self.kill_agent()

    def _end(self) -> None:
        process = self._process
        if process is None:
            return
        left = descendants(process.pid)
        with contextlib.suppress(OSError, AssertionError):
            self.ask("quit")
        if process.poll() is None:
            process.kill()
        self._ended()
        self._orphans(left)

    def _ended(self) -> None:
        process, self._process = self._process, None
        assert process is not None and process.stdin is not None and process.stdout is not None
        process.wait(30)
        with contextlib.suppress(OSError):
            process.stdin.close()
        process.stdout.close()

    def _orphans(self, pids: list[int]) -> None:
        # An orphaned rsync would go on; one that outlives the test must not be.
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def _answer(self) -> dict[str, Any]:
        assert self._process is not None and self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], _PATIENCE_S)
        assert ready, f"the mirror's process said nothing for {_PATIENCE_S:g} s"
        line = self._process.stdout.readline()
        assert line, "the mirror's process has ended"
        answer: dict[str, Any] = json.loads(line)
        return answer


class _Far:
    """The other side as the child's mirror sees it: its agent, if it has one, and its files."""

    def __init__(self, root: Path, directory: Path, name: str) -> None:
        self._root = root
        self._directory, self._name = directory, name
        self._node: Node | None = None

    async def keep(self, arrived: Callable[[], None]) -> None:
        """Have an agent, and another one whenever it has ended. Until cancelled."""
        while self._name:
            node = Node(self._directory, self._name)
            try:
                await node.start()
                self._node = node
                arrived()
                await node.ended()
            except TunnelkitError:
                await asyncio.sleep(0.1)
            finally:
                self._node = None
                await node.client.close("the child has another one")

    def agent(self) -> HeldFileAgent | None:
        return self._node.host if self._node is not None and self._node.host.is_up else None

    async def check(self, digests: Mapping[str, str]) -> list[str]:
        """Read here: the disk is the same."""
        return [path for path, text in digests.items() if _digest(self._root / path) != text]


async def _main(
    directory: str, port: str, local: str, home: str, state: str, agent_dir: str, agent_name: str
) -> None:
    far = _Far(Path(home) / "tk" / "my project", Path(agent_dir), agent_name)
    mirror = Mirror(
        MirrorSpec(local, "~/tk/my project"),
        SshRemote(Sshd.known(Path(directory), int(port)), Path(home)),
        RigHost(agent=far.agent, verify=lambda: far.check),
        state_dir=Path(state),
    )
    keeping = asyncio.create_task(far.keep(mirror.look_again))
    if agent_name:
        while far.agent() is None:
            await asyncio.sleep(0.01)
    _say(await _tried(mirror, "start"))
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    while line := await reader.readline():
        if line.strip() == b"quit":
            break
        _say({**await _tried(mirror, line.decode().strip()), "agent": far.agent() is not None})
    await mirror.stop()
    keeping.cancel()
    await asyncio.wait([keeping])
    _say({"ended": True})


async def _tried(mirror: Mirror, line: str) -> dict[str, object]:
    word, _, value = line.partition(" ")
    try:
        if word == "start":
            await mirror.start()
            return {"started": True}
        if word == "resync":
            report = await mirror.resync()
        else:
            report = await mirror.barrier(float(value), allow_deletes=True)
    except TunnelkitError as error:
        return {"error": f"{type(error).__name__}: {error.one_line()}"}
    return {"sent": report.sent, "deleted": report.deleted, "proven": report.proven}


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def _say(answer: Mapping[str, object]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    scanner._FOUND_PATHS = _FOUND_PATHS
    batch_reader.WHOLE_BYTES = int(sys.argv[-1])
    asyncio.run(_main(*sys.argv[1:-1]))
