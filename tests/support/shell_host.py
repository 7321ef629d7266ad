"""A login host on this machine: each command runs in a shell of its own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path

from tunnelkit.errors import TimeoutExpired
from tunnelkit.model import Completed


class ShellHost:
    """programs: a directory whose programs come before the system's."""

    def __init__(self, programs: Path | None = None) -> None:
        self._path = f"{programs}:/usr/bin:/bin" if programs is not None else "/usr/bin:/bin"
        self.commands = 0
        #: False: no command ends
        self.answers = True

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 30.0
    ) -> Completed:
        self.commands += 1
        if not self.answers:
            await asyncio.sleep(timeout_s)
            raise TimeoutExpired("no answer in time", transient=True)
        child = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={"PATH": self._path},
        )
        try:
            out, err = await child.communicate(stdin)
        finally:
            if child.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    child.kill()
                await child.wait()
        return Completed(child.returncode or 0, out, err)

    def remote_shell(self) -> list[str]:
        return []

    def destination(self) -> str:
        return "far"


def failing_stat(directory: Path, name: str) -> Path:
    """Return a directory of programs with a `stat` that has an I/O error at paths with `name`."""
    directory.mkdir()
    program = directory / "stat"
    program.write_text(
        f"""#!/bin/sh
for word do case $word in *{name}*)
  echo "stat: cannot statx '$word': Input/output error" >&2; exit 1 ;; esac; done
exec /usr/bin/stat "$@"
"""
    )
    program.chmod(0o755)
    return directory
