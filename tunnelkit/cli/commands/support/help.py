"""`tk help`: short texts on one subject each, which commands' own `--help` has no room for."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from importlib import resources
from typing import Annotated

from tunnelkit.cli.completion import sources
from tunnelkit.cli.lazy_typer import typer
from tunnelkit.cli.registry import COMMANDS, TOPICS
from tunnelkit.cli.terminal.output import say, wants_colour
from tunnelkit.errors import MEANINGS, UsageError

_TABLE = "@EXIT_CODES@"


def show_help(
    topic: Annotated[
        str | None,
        typer.Argument(
            metavar="TOPIC", help="A topic or a command.", autocompletion=sources.topics
        ),
    ] = None,
) -> None:
    """Explain a topic, or a command; alone: list the topics.

    tk help
    tk help debugging
    tk help up
    """
    if topic is None:
        say(overview())
    elif topic in TOPICS:
        page(text_of(topic))
    elif topic in COMMANDS:
        from tunnelkit.cli.app import build

        build({topic})([topic, "--help"], prog_name="tk", standalone_mode=False)
    else:
        raise UsageError(
            f"there is no help on {topic!r}", hint=_nearest(topic, [*TOPICS, *COMMANDS])
        )


def _nearest(word: str, known: list[str]) -> str:
    import difflib

    near = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {near[0]!r}?" if near else "`tk help` lists the topics"


def overview() -> str:
    """List the topics, a line each."""
    width = max(map(len, TOPICS))
    lines = [f"  {name:<{width}}  {summary(name)}" for name in TOPICS]
    return "\n".join(
        ["Topics:", *lines, "", "tk help TOPIC reads one; tk help COMMAND explains one."]
    )


def summary(topic: str) -> str:
    """Return the title of a topic's text."""
    return text_of(topic).partition("\n")[0].removeprefix("# ")


def text_of(topic: str) -> str:
    """Return the text of a topic."""
    place = resources.files("tunnelkit.cli") / "topics" / f"{topic}.md"
    return place.read_text(encoding="utf-8").replace(_TABLE, exit_code_table())


def exit_code_table() -> str:
    """List each exit code with its meaning, a line each."""
    return "\n".join(f"  {int(code):>3}  {meaning}" for code, meaning in MEANINGS.items())


def page(text: str) -> None:
    """Show a text, on a terminal in the user's pager."""
    text = text.rstrip("\n")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        say(text)
        return
    shown = _styled(text) if wants_colour(sys.stdout) else text
    argv = _pager()
    if argv is None:
        say(shown)
        return
    # F: a text that fits is just printed. R: colours. X: it stays on the screen.
    environ = {"LESS": "FRX", **os.environ}
    # Ctrl-C is the pager's: ended by it, less would leave the terminal without echo.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        subprocess.run(
            argv,
            input=shown + "\n",
            text=True,
            env=environ,
            check=False,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
    except OSError:
        say(shown)
    finally:
        signal.signal(signal.SIGINT, before)


def _pager() -> list[str] | None:
    """$PAGER's words, else less; None where there is none."""
    import shlex

    chosen = os.environ.get("PAGER", "less")
    try:
        words = shlex.split(chosen)
    except ValueError:
        return None
    return words if words and words[0] != "cat" and shutil.which(words[0]) else None


def _styled(text: str) -> str:
    """Titles in bold."""
    return re.sub(r"^#+ (.*)$", "\x1b[1m\\1\x1b[0m", text, flags=re.MULTILINE)
