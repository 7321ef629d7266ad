"""The probe's commands, each a module of its own, imported when it runs: `sample` and `box`."""

import sys
from typing import Callable, Dict, List


def _box(words: List[str]) -> int:
    from tunnelkit.probe.black_box.box import main as box

    return box(words)


def _sample(words: List[str]) -> int:
    from tunnelkit.probe.sample import main as sample

    return sample(words)


#: name -> takes the words after it, returns the exit code.
COMMANDS: Dict[str, Callable[[List[str]], int]] = {"box": _box, "sample": _sample}


def main(words: List[str]) -> int:
    """Run one command; 2 if there is none of that name."""
    command = COMMANDS.get(words[0]) if words else None
    if command is None:
        print("probe: commands:", ", ".join(sorted(COMMANDS)), file=sys.stderr)
        return 2
    return command(words[1:])
