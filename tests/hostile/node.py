"""A node that lies: far_node.py stands between the session and its agent, and obeys a test."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hostile import far_node
from tests.support import processes
from tests.support.processes import Seen
from tests.support.tkrig import Project

_PATIENCE_S = 90.0


class Node:
    """The node of a project's session. `attack` once the session is up; then see that all holds."""

    def __init__(self, project: Project, directory: Path) -> None:
        self.directory = directory
        self._project = project
        python = directory / "python"
        program = f"{sys.executable} {far_node.__file__} {directory}"
        python.write_text(
            "#!/bin/sh\n"
            f'case " $* " in *" attach "*) exec {program} {sys.executable} "$@";; esac\n'
            f'exec {sys.executable} "$@"\n'
        )
        python.chmod(0o755)
        project.configure(f'[cluster]\npython = "{python}"\n')

    def introduces_itself(self) -> None:
        """Have each text of the agent's answers replaced by one that a terminal would obey."""
        (self.directory / far_node.LIES).touch()

    async def attack(self, name: str, *, ends: bool = False, **how: Any) -> None:
        """Have the node attack, and wait until all of it is out. ends: the session may hang up
        before."""
        async with asyncio.timeout(_PATIENCE_S):
            reader, writer = await asyncio.open_unix_connection(self.directory / far_node.SOCKET)
            writer.write(json.dumps({"attack": name, **how}).encode() + b"\n")
            try:
                assert await reader.readline() == b"done\n" or ends, "the attack did not succeed"
            except ConnectionError:
                assert ends
            finally:
                writer.close()

    def daemon(self) -> Seen:
        """The session's process on the laptop."""
        return next(
            one
            for one in self._project.laptop_processes()
            if "tunnelkit.session.daemon" in one.argv
        )

    def memory_mib(self, pid: int | None = None) -> int:
        """What a process, by default the daemon, has in memory at most so far."""
        status = Path(f"/proc/{pid or self.daemon().pid}/status").read_text()
        (peak,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
        return int(peak.split()[1]) // 1024

    def fds(self) -> int:
        """How many descriptors the daemon has."""
        return len(list(Path(f"/proc/{self.daemon().pid}/fd").iterdir()))

    def adapters(self) -> list[Seen]:
        """The debug adapters, the process that forks them included."""
        module = "tunnelkit.debug.adapter.adapter_server"
        return [one for one in self._project.laptop_processes() if module in one.argv]


@pytest.fixture
def node(project: Project) -> Iterator[Node]:
    """The node of `project`, which is hostile from `tk up` on."""
    directory = Path(tempfile.mkdtemp(prefix="tkn", dir="/tmp"))
    try:
        yield Node(project, directory)
    finally:
        processes.kill(
            one
            for one in processes.look().values()
            if far_node.__file__ in one.argv and str(directory) in one.argv
        )
        shutil.rmtree(directory)
