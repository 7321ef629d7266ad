"""A program that looks like ssh to a transfer, and becomes `kubectl exec`.

    python pod_shell.py COUNT KUBECTL-WORDS... [--] POD COMMAND...

Standard library only, and started as a file: a transfer waits for its start.
"""

from __future__ import annotations

import os
import sys


def exec_argv(argv: list[str]) -> list[str]:
    """Return the argv to become. The command is text for a shell, as ssh's is."""
    count = int(argv[0])
    kubectl, rest = argv[1 : 1 + count], argv[1 + count :]
    if rest[:1] == ["--"]:
        rest = rest[1:]
    return [*kubectl, rest[0], "--", "sh", "-c", " ".join(rest[1:])]


if __name__ == "__main__":
    words = exec_argv(sys.argv[1:])
    os.execvp(words[0], words)  # noqa: S606 - nothing of it passes a shell on this machine
