"""Remote command lines whose words survive every login shell.

sshd hands the command to the user's login shell as `$SHELL -c TEXT`. That shell may
be csh (history `!`, no newline inside quotes) or fish (`\\'` inside single quotes), so
TEXT holds only what all of them read alike: everything else travels as octal.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from tunnelkit.errors import UsageError

_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_@%+=:,./- ")


def remote_command(argv: Sequence[str]) -> str:
    """Return the text for ssh with which the remote host executes exactly the words of `argv`.

    Raises UsageError if there is no word, or a word that no argv can carry (a NUL, a lone
    surrogate).
    """
    if not argv:
        raise UsageError("there is no command to run", hint="name one: tk run COMMAND")
    try:
        script = ("exec " + shlex.join(argv)).encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise UsageError(
            "a remote command holds what is no text",
            cause=str(error),
            hint="only UTF-8 can be sent",
        ) from error
    if b"\0" in script:
        raise UsageError("a remote command can't hold a NUL byte", hint="take it out")
    if _PLAIN.issuperset(script):
        return f"exec sh -c '{script.decode()}'"
    encoded = "".join(chr(byte) if byte in _PLAIN else f"\\0{byte:03o}" for byte in script)
    return f'exec sh -c \'eval "$(printf %b "{encoded}")"\''
