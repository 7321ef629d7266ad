"""The probe's commands, a module each, imported when one runs: `sample`, `stream`, `box`."""

import sys
from typing import Callable, Dict, List


def _box(words: List[str]) -> int:
    from tunnelkit.probe.black_box.box import main as box

    return box(words)


def _sample(words: List[str]) -> int:
    from tunnelkit.probe.sample import main as sample

    return sample(words)


def _stream(words: List[str]) -> int:
    from tunnelkit.probe.stream import main as stream

    return stream(words)


#: name -> takes the words after it, returns the exit code.
COMMANDS: Dict[str, Callable[[List[str]], int]] = {
    "box": _box,
    "sample": _sample,
    "stream": _stream,
}


def main(words: List[str]) -> int:
    """Run one command; 2 if there is none of that name."""
    command = COMMANDS.get(words[0]) if words else None
    if command is None:
        print("probe: commands:", ", ".join(sorted(COMMANDS)), file=sys.stderr)
        return 2
    return command(words[1:])
