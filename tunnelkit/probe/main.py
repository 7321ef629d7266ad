"""The probe's commands, each a module of its own: `sample` and `box`."""

import sys
from typing import Callable, Dict, List

from tunnelkit.probe import sample

#: name -> takes the words after it, returns the exit code.
COMMANDS: Dict[str, Callable[[List[str]], int]] = {"sample": sample.main}


def main(words: List[str]) -> int:
    """Run one command; 2 if there is none of that name."""
    command = COMMANDS.get(words[0]) if words else None
    if command is None:
        print("probe: commands:", ", ".join(sorted(COMMANDS)), file=sys.stderr)
        return 2
    return command(words[1:])
