"""A login shell that prints where nobody reads, and the file of the person's that makes it do so.

rsync takes what it prints for its own protocol and gives up. All else of tk waits for a mark.
"""

from __future__ import annotations

import os

from tunnelkit.text_format import shown

_SHOWN_CHARS = 40
# The file that each shell reads also for a command by ssh, and how it asks whether a person is
# there.
_FILES = {
    "bash": ("~/.bashrc", "[[ $- == *i* ]]"),
    "zsh": ("~/.zshenv", "[[ -o interactive ]]"),
    "fish": ("~/.config/fish/config.fish", "status is-interactive"),
    "tcsh": ("~/.tcshrc or ~/.cshrc", "if ($?prompt)"),
    "csh": ("~/.cshrc", "if ($?prompt)"),
    "ksh": ("~/.kshrc", "[[ $- == *i* ]]"),
}


def first_words(noise: bytes) -> str:
    """What a login shell printed, short and safe for a terminal; "" if that shows nothing."""
    text = " ".join(noise.replace(b"\0", b" ").decode("utf-8", "replace").split())
    if len(text) > _SHOWN_CHARS:
        text = text[: _SHOWN_CHARS - 3] + "..."
    return shown(text)


def advice(shell: str) -> str:
    """What to change so that the login shell (the far $SHELL, "" if unknown) is silent."""
    name = os.path.basename(shell)
    if name not in _FILES:
        called = f"{shown(name)} reads" if name else "it reads"
        return f"let the start files that {called} print only in interactive shells"
    file, condition = _FILES[name]
    return f"let {file} print only where `{condition}` holds"
