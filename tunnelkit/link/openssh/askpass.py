"""Questions that ssh asks while it has no terminal: passwords, codes, new host keys.

ssh runs the program named by SSH_ASKPASS with the question as its argument. tk's program carries
the question over a unix socket (0600, in the link's 0700 directory) to the `AskpassServer`, which
asks the user through the link's `Prompter`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tunnelkit.link.base import Prompter

_HELPER = """\
import json, os, socket, sys
sock = socket.socket(socket.AF_UNIX)
sock.connect(sys.argv[1])
request = {
    "prompt": " ".join(sys.argv[2:]),
    "kind": os.environ.get("SSH_ASKPASS_PROMPT", ""),
    "asker": os.environ.get("TUNNELKIT_ASKER", ""),
}
sock.sendall(json.dumps(request).encode() + b"\\n")
answer = json.loads(sock.makefile("rb").readline() or b"null")
if answer is None:
    sys.exit(1)
print(answer)
"""


class Asker:
    """One ssh that may ask. `unanswered` is set, with the question, when nobody answers.
    attended: False for an ssh in BatchMode, which only shows something (a touch)."""

    def __init__(self, name: str, env: dict[str, str], *, attended: bool = True) -> None:
        self.name = name
        self.env = env
        self.attended = attended
        self.unanswered: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.waiting = 0
        self.answered_at: float | None = None


class AskpassServer:
    """Owns the socket and the helper program; asks one question at a time.

    notice: called with what ssh only wants to show ("touch your security key").
    """

    def __init__(
        self,
        directory: Path,
        prompter: Prompter,
        notice: Callable[[str], None] | None = None,
    ) -> None:
        self._socket = directory / "askpass.s"
        self._program = directory / "askpass"
        self._prompter = prompter
        self._notice = notice
        self._server: asyncio.Server | None = None
        self._askers: dict[str, Asker] = {}
        self._one_at_a_time = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Start to listen. Idempotent."""
        if self._server is not None:
            return
        self._socket.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._accept, str(self._socket))
        self._socket.chmod(0o600)
        words = [sys.executable, "-I", "-c", _HELPER, str(self._socket)]
        self._program.unlink(missing_ok=True)
        fd = os.open(self._program, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700)
        with os.fdopen(fd, "w") as file:
            # A shell in front, for interpreters whose path holds a space.
            file.write(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')

    def asker(self, name: str, *, attended: bool = True) -> Asker:
        """An asker registered under this name, with the environment for its ssh."""
        env = {
            **os.environ,
            "SSH_ASKPASS": str(self._program),
            "SSH_ASKPASS_REQUIRE": "force",
            "TUNNELKIT_ASKER": name,
        }
        # OpenSSH before 8.4 knows no SSH_ASKPASS_REQUIRE and wants a DISPLAY.
        env.setdefault("DISPLAY", ":0")
        self._askers[name] = Asker(name, env, attended=attended)
        return self._askers[name]

    async def close(self) -> None:
        """Stop listening, end open questions, remove the files. Idempotent."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._socket.unlink(missing_ok=True)
        self._program.unlink(missing_ok=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = json.loads(await reader.readline() or b"{}")
            asker = self._askers.get(str(request.get("asker")))
            if asker is None:
                return
            asker.waiting += 1
            gone = asyncio.ensure_future(reader.read())
            answering = asyncio.ensure_future(
                self._answer(asker, str(request["prompt"]), str(request["kind"]))
            )
            try:
                # A helper that ssh killed (the link is being closed) ends the question.
                await asyncio.wait({gone, answering}, return_when=asyncio.FIRST_COMPLETED)
                if answering.done():
                    writer.write(json.dumps(answering.result()).encode() + b"\n")
                    await writer.drain()
            finally:
                asker.waiting -= 1
                asker.answered_at = time.monotonic()
                for task in (gone, answering):
                    task.cancel()
                await asyncio.gather(gone, answering, return_exceptions=True)
        except (OSError, ValueError):
            pass  # the helper went away or is not ours
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, asker: Asker, prompt: str, kind: str) -> str | None:
        if kind == "none":
            if self._notice:
                self._notice(prompt)
            await asyncio.get_running_loop().create_future()  # until ssh ends the helper
        async with self._one_at_a_time:
            if kind == "confirm":
                answer = await self._ask(f"{prompt} (yes/no) ", True)
                return answer if (answer or "").strip().lower() in ("y", "yes") else None
            answer = await self._ask(prompt, "(yes/no" in prompt)
        if answer is None:
            # ssh would send an empty password now, and sites count failures: the owner of the
            # master is notified instead, and ends it before the site receives anything.
            if not asker.unanswered.done():
                asker.unanswered.set_result(prompt.strip())
            await asyncio.get_running_loop().create_future()
        return answer

    async def _ask(self, prompt: str, echo: bool) -> str | None:
        try:
            return await self._prompter(prompt, echo)
        except Exception:
            # Whatever broke at the asking end, ssh must see no answer rather than an empty one.
            logging.getLogger(__name__).exception("the prompter failed")
            return None
