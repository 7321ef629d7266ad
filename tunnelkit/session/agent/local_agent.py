"""An agent on this very machine, for `tk loop` where there is no session."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tunnelkit import agent_zip
from tunnelkit.link.base import ByteStream
from tunnelkit.session.agent.local_process import open_local_stream


def agent_argv(path: str, *words: str, python: str = sys.executable) -> list[str]:
    """argv that runs the agent's zip, cut off from the person's own Python settings."""
    return [python, "-I", "-S", path, *words]


class LocalAgent:
    """Starts an agent of its own here on first dial. The caller ends it by RPC `shutdown`."""

    def __init__(self, directory: Path, name: str) -> None:
        self._payload = agent_zip.build()
        self._path = directory / self._payload.file_name
        self._name = name

    async def dial(self) -> ByteStream:
        """A stream to the agent; starts it if it is not there."""
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
