"""Agent on the local machine, for `tk loop` without a session."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tunnelkit import agent_zip
from tunnelkit.link.base import ByteStream
from tunnelkit.session.agent.local_process import open_local_stream


def agent_argv(path: str, *words: str, python: str = sys.executable) -> list[str]:
    """Return the argv that runs the agent's zip, isolated from the user's Python settings."""
    return [python, "-I", "-S", path, *words]


class LocalAgent:
    """A local agent, started at the first `dial`. The caller ends it by RPC `shutdown`."""

    def __init__(self, directory: Path, name: str) -> None:
        self._payload = agent_zip.build()
        self._path = directory / self._payload.file_name
        self._name = name

    async def dial(self) -> ByteStream:
        """Open a stream to the agent; start the agent if it does not run."""
        if not self._is_whole():
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            temporary = self._path.with_suffix(f".{os.getpid()}")
            with temporary.open("wb") as file:
                file.write(self._payload.data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._path)
        return await open_local_stream(agent_argv(str(self._path), "attach", self._name, "--start"))

    def _is_whole(self) -> bool:
        try:
            return self._path.read_bytes() == self._payload.data
        except OSError:
            return False
