"""The prompt of a console over many ranks: editing, history and TAB, by prompt_toolkit."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory
from prompt_toolkit.patch_stdout import patch_stdout

from tunnelkit.cli.terminal.output import safe
from tunnelkit.cli.views.console_shell import ConsoleShell
from tunnelkit.debug.console.console import Console
from tunnelkit.mux.tasks import cancel_all


class _Completer(Completer):
    """The core's completions: whole lines that begin with the text."""

    def __init__(self, core: Console) -> None:
        self._core = core

    def get_completions(self, document: Document, event: CompleteEvent) -> Iterable[Completion]:
        """Yield what may follow."""
        typed = document.text_before_cursor
        for line in self._core.complete(typed):
            yield Completion(line, start_position=-len(typed))


def show_lines(lines: Sequence[str]) -> None:
    """Print lines; while a line is typed, above it."""
    print(safe("\n".join(lines)), flush=True)


class ConsolePrompt:
    """Reads the user's lines. history: a file of the user's alone."""

    def __init__(self, core: Console, history: Path) -> None:
        self._core = core
        self._session: PromptSession[str] = PromptSession(
            history=FileHistory(str(history)),
            completer=_Completer(core),
            complete_while_typing=False,
            enable_suspend=True,
        )

    async def serve(self, shell: ConsoleShell, lost: asyncio.Task[None]) -> bool:
        """Read lines until the user leaves (True) or the session is lost (False)."""
        with patch_stdout(raw=False):
            while not shell.over:
                reading = asyncio.create_task(self._read(shell))
                try:
                    await asyncio.wait([reading, lost], return_when=asyncio.FIRST_COMPLETED)
                    if not reading.done():
                        return False
                    reading.result()
                finally:
                    await cancel_all(reading)
        return True

    async def _read(self, shell: ConsoleShell) -> None:
        """Read one line, and wait for its answers; Ctrl-C ends the waiting only."""
        self._core.columns = self._session.app.output.get_size().columns
        try:
            line = await self._session.prompt_async(lambda: self._core.prompt)
        except EOFError:
            line = "EOF"
        except KeyboardInterrupt:
            shell.interrupt()
            return
        shell.type(line)
