"""The command line of `tk submit`: tk's options, sbatch's options, the script, its arguments."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tunnelkit.errors import UsageError
from tunnelkit.scheduler.batch_scripts import BatchScripts
from tunnelkit.scheduler.pbs.batch_scripts import PbsBatchScripts
from tunnelkit.scheduler.slurm.batch_scripts import SlurmBatchScripts
from tunnelkit.scheduler.slurm.duration import parse_duration
from tunnelkit.session.runtime.control_calls import Submit
from tunnelkit.session.submit.send import UserScript

HOUR_S, IDLE_S = 3600.0, 1200.0
#: tk's options: True if one takes a value.
_OWN = {
    "--keep-on-failure": False,
    "--post-mortem": False,
    "--idle": True,
    "--keep-max": True,
    "--print": False,
    "--json": False,
    "--login": True,
}
#: Of those, the ones that a script's own arguments may well have: tk's before the script only.
_SHARED = ("--login",)
_UNITS_S = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


@dataclass
class SubmitLine:
    """A command line that was read. path: the script's. keep_s: 0: not kept if it fails.

    stand_s: 0: no Python of it is kept at an exception. login: another login host."""

    path: str = ""
    options: list[str] = field(default_factory=list)
    args: list[str] = field(default_factory=list)
    keep_s: float = 0.0
    idle_s: float = IDLE_S
    most: int = 1
    stand_s: float = 0.0
    show: bool = False
    as_json: bool = False
    login: str | None = None

    def script(self) -> UserScript:
        """Return the script with its text. Raises UsageError."""
        return UserScript(
            os.path.basename(self.path),
            _read(self.path),
            self.options,
            self.args,
            self.keep_s,
            self.idle_s,
            self.most,
            self.stand_s,
        )

    def request(self, here: str) -> Submit:
        """Return the call of a session. Raises UsageError."""
        return Submit(
            name=_latin(os.path.basename(self.path)),
            text=_read(self.path).decode("latin-1"),
            options=[_latin(word) for word in self.options],
            args=[_latin(word) for word in self.args],
            here=here,
            keep_s=self.keep_s,
            idle_s=self.idle_s,
            most=self.most,
            stand_s=self.stand_s,
        )


def read_line(words: Sequence[str]) -> SubmitLine:
    """Read a command line as sbatch does: its options end at the first other word, the script.

    As qsub does where that gives a script that is there. tk's own options may also follow the
    script, before its first argument (`--login` may not); not after `--`. Raises UsageError.
    """
    line = _read_as(words, SlurmBatchScripts())
    if os.path.isfile(line.path):
        return line
    try:
        other = _read_as(words, PbsBatchScripts())
    except UsageError:
        return line
    return other if os.path.isfile(other.path) else line


def _read_as(words: Sequence[str], dialect: BatchScripts) -> SubmitLine:
    line = SubmitLine()
    rest = list(words)
    while rest and rest[0] != "--":
        if _take_own(line, rest):
            continue
        word = rest[0]
        if word != ":" and (word == "-" or not word.startswith("-")):
            break
        size = 2 if dialect.takes_next(word) else 1
        line.options += rest[:size]
        del rest[:size]
    is_plain = rest[:1] == ["--"]
    del rest[: int(is_plain)]
    if not rest:
        raise UsageError("no script is named", hint="tk submit [OPTIONS] SCRIPT [ARGS]")
    line.path = rest.pop(0)
    while not is_plain and rest and not rest[0].startswith(_SHARED) and _take_own(line, rest):
        pass
    line.args = rest
    return line


def _take_own(line: SubmitLine, rest: list[str]) -> bool:
    """Take one of tk's own options from the beginning; return False if there is none."""
    name, has_value, value = rest[0].partition("=") if rest else ("", "", "")
    if name not in _OWN:
        return False
    del rest[0]
    if _OWN[name] and not has_value:
        if not rest:
            raise UsageError(f"{name} has no value", hint=f"write {name}=VALUE")
        value = rest.pop(0)
    if name == "--keep-on-failure":
        line.keep_s = seconds(value, name) if has_value else HOUR_S
    elif name == "--post-mortem":
        line.stand_s = seconds(value, name) if has_value else HOUR_S
    elif name == "--idle":
        line.idle_s = seconds(value, name)
    elif name == "--keep-max":
        line.most = _count(value)
    elif name == "--login":
        line.login = value
    elif has_value:
        raise UsageError(f"{name} takes no value", hint=f"write {name}")
    elif name == "--print":
        line.show = True
    else:
        line.as_json = True
    return True


def seconds(text: str, name: str) -> float:
    """Return a time such as 90s, 30m, 1h or 1:30:00. Raises UsageError."""
    found = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)(s|m|min|h|d)", text)
    value = float(found[1]) * _UNITS_S[found[2]] if found else parse_duration(text)
    if not value:
        raise UsageError(f"{name}: {text!r} is no time", hint="write it as 30m, 1h or 1:30:00")
    return float(value)


def _count(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,3}", text):
        raise UsageError(f"--keep-max: {text!r} is no number from 1", hint="write --keep-max=1")
    return int(text)


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UsageError(
            f"the script {path} can't be read",
            cause=error.strerror,
            hint="SCRIPT is a file on this computer, whose text is sent; options come before it",
        ) from None


def _latin(word: str) -> str:
    return os.fsencode(word).decode("latin-1")
