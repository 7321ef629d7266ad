"""The probe's commands, each a module of its own: `sample` and `box`."""

import sys
from collections.abc import Callable

#: name -> takes the words after it, returns the exit code.
COMMANDS: dict[str, Callable[[list[str]], int]] = {}


def main(words: list[str]) -> int:
    """Run one command; 2 if there is none of that name."""
    command = COMMANDS.get(words[0]) if words else None
    if command is None:
        print("probe: commands:", ", ".join(sorted(COMMANDS)), file=sys.stderr)
        return 2
    return command(words[1:])
