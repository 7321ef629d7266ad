"""Login shells that print output into a command's stream, and the start file that makes them do so.

rsync takes that output for its own protocol and gives up. All else of tk waits for a mark.
"""

from __future__ import annotations

import os

from tunnelkit.text_format import shown

_SHOWN_CHARS = 40
# The file that each shell reads also for a command by ssh, and its test for an interactive shell.
_FILES = {
    "bash": ("~/.bashrc", "[[ $- == *i* ]]"),
    "zsh": ("~/.zshenv", "[[ -o interactive ]]"),
    "fish": ("~/.config/fish/config.fish", "status is-interactive"),
    "tcsh": ("~/.tcshrc or ~/.cshrc", "if ($?prompt)"),
    "csh": ("~/.cshrc", "if ($?prompt)"),
    "ksh": ("~/.kshrc", "[[ $- == *i* ]]"),
}


#: What a user does about a program that only login shells find: tk's commands are run by others.
MODULE_HINT = (
    "load its module at the top of ~/.bashrc (zsh: ~/.zshenv), which commands by ssh read, too"
)


def first_words(noise: bytes) -> str:
    """Return the printed text, short and safe for a terminal; "" if nothing is visible."""
    text = " ".join(noise.replace(b"\0", b" ").decode("utf-8", "replace").split())
    if len(text) > _SHOWN_CHARS:
        text = text[: _SHOWN_CHARS - 3] + "..."
    return shown(text)


def advice(shell: str) -> str:
    """Return what to change so that the login shell is silent.

    shell: the remote $SHELL, "" if unknown.
    """
    name = os.path.basename(shell)
    if name not in _FILES:
        called = f"{shown(name)} reads" if name else "it reads"
        return f"let the start files that {called} print only in interactive shells"
    file, condition = _FILES[name]
    return f"let {file} print only where `{condition}` holds"
