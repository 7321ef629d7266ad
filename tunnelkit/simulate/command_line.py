"""The command line of `tk simulate`: tk's options, the scheduler's, the script or a command."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tunnelkit.errors import UsageError
from tunnelkit.scheduler.factory import script_options
from tunnelkit.scheduler.script_options import (
    ScriptOptions,
    ScriptRequest,
    Wanted,
    is_for_pbs,
    with_default,
)
from tunnelkit.scheduler.slurm.duration import parse_duration
from tunnelkit.simulate.runners.choice import NAMES

#: tk's options: True if one takes a value.
_OWN = {
    "--only-check": False,
    "--check-only": False,
    "--no-check": False,
    "--force": False,
    "--json": False,
    "--in": True,
    "--image": True,
    "--for": True,
    "--mem": True,
    "--cpus": True,
    "--time": True,
    "--profile": True,
    "--login": True,
}
_UNITS_S = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_MOST_BYTES = 16 << 20


@dataclass
class SimulateLine:
    """A command line that was read.

    path: the script's, with args; or words: a command. options: the scheduler's. values: of tk's
    own options. scheduler: whose script it is."""

    path: str = ""
    args: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    options: list[str] = field(default_factory=list)
    values: dict[str, str] = field(default_factory=dict)
    scheduler: str = "slurm"
    text: bytes = b""

    @property
    def name(self) -> str:
        """The script's or the command's name."""
        return Path(self.path or self.words[0]).name

    def has(self, option: str) -> bool:
        """Return True if one of tk's own options is given."""
        return option in self.values

    @property
    def only_check(self) -> bool:
        """True if nothing runs here."""
        return self.has("--only-check") or self.has("--check-only")

    @property
    def stop_s(self) -> float | None:
        """The seconds after which the run is stopped."""
        text = self.values.get("--for")
        return None if text is None else seconds(text, "--for")

    def wanted(self) -> Wanted:
        """Return what --mem, --cpus and --time ask for."""
        cpus, time = self.values.get("--cpus"), self.values.get("--time")
        if cpus is not None and not re.fullmatch(r"[1-9][0-9]{0,4}", cpus):
            raise UsageError(f"--cpus: {cpus!r} is no number from 1", hint="write --cpus 2")
        mem = self.values.get("--mem")
        if mem is not None and not re.fullmatch(r"[0-9]{1,12}[KMGTkmgt]?", mem):
            raise UsageError(f"--mem: {mem!r} is no size", hint="write it as 8G or 500M")
        return Wanted(
            mem,
            None if cpus is None else int(cpus),
            None if time is None else max(1, int(seconds(time, "--time"))),
        )

    def dialect(self) -> ScriptOptions:
        """Return what reads the script."""
        found = script_options(self.scheduler)
        assert found is not None, "read_line names a known one"
        return found

    def request(self, default: Wanted | None = None) -> ScriptRequest:
        """Return the job: what the script and the options ask for, and else `default`."""
        dialect = self.dialect()
        words = [*dialect.words(self.text), *self.options, *dialect.asking(self.wanted())]
        return dialect.request(with_default(dialect, default or Wanted(), words))


def read_line(words: Sequence[str]) -> SimulateLine:
    """Read a command line; all options end at SCRIPT or `--`. Raises UsageError.

    The script tells whose it is; its options are read in that scheduler's way."""
    by_slurm = _read(words, "slurm")
    if by_slurm.words:
        return _checked(by_slurm)
    text = _text(by_slurm.path)
    if text is None or is_for_pbs(text):
        by_pbs = _read(words, "pbs")
        pbs_text = _text(by_pbs.path) if by_pbs.path else None
        if pbs_text is not None:
            by_pbs.text = pbs_text
            return _checked(by_pbs)
    by_slurm.text = _must_read(by_slurm.path) if text is None else text
    return _checked(by_slurm)


def _read(words: Sequence[str], scheduler: str) -> SimulateLine:
    line = SimulateLine(scheduler=scheduler)
    rest = list(words)
    dialect = line.dialect()
    while rest and rest[0] != "--":
        if _take_own(line, rest):
            continue
        word = rest[0]
        if word == "-" or not word.startswith("-"):
            break
        size = 2 if dialect.takes_next(word) else 1
        line.options += rest[:size]
        del rest[:size]
    if rest[:1] == ["--"]:
        line.words = rest[1:]
        if not line.words:
            raise UsageError("no command is named", hint="tk simulate -- COMMAND")
        return line
    if not rest:
        raise UsageError("no script is named", hint="tk simulate SCRIPT, or: -- COMMAND")
    # Not as in `tk submit`: these options have names that scripts use, too (--time, --in, --json).
    line.path, *line.args = rest
    return line


def _take_own(line: SimulateLine, rest: list[str]) -> bool:
    """Take one of tk's own options from the beginning; return False if there is none."""
    name, has_value, value = rest[0].partition("=") if rest else ("", "", "")
    if name not in _OWN:
        return False
    del rest[0]
    if _OWN[name] and not has_value:
        if not rest:
            raise UsageError(f"{name} has no value", hint=f"write {name}=VALUE")
        value = rest.pop(0)
    elif has_value and not _OWN[name]:
        raise UsageError(f"{name} takes no value", hint=f"write {name}")
    line.values[name] = value
    return True


def _checked(line: SimulateLine) -> SimulateLine:
    """Return the line. Raises UsageError for values that can't be."""
    runner = line.values.get("--in")
    if runner is not None and runner not in NAMES:
        known = ", ".join(NAMES)
        raise UsageError(f"--in: {runner!r} is none of {known}", hint=f"write --in {NAMES[-1]}")
    if line.only_check and line.has("--no-check"):
        raise UsageError("--only-check and --no-check exclude one another", hint="give one")
    if line.values.get("--image", "x").startswith("-") or not line.values.get("--image", "x"):
        raise UsageError("--image names no image", hint="write --image python:3.12")
    if line.stop_s is None or line.stop_s > 0:
        line.wanted()
    return line


def seconds(text: str, name: str) -> float:
    """Return a time such as 90s, 30m, 1h or 1:30:00. Raises UsageError."""
    found = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)(s|m|min|h|d)", text)
    value = float(found[1]) * _UNITS_S[found[2]] if found else parse_duration(text)
    if not value:
        raise UsageError(f"{name}: {text!r} is no time", hint="write it as 90s, 30m or 1:30:00")
    return float(value)


def _text(path: str) -> bytes | None:
    try:
        with Path(path).open("rb") as file:
            return file.read(_MOST_BYTES)
    except OSError:
        return None


def _must_read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UsageError(
            f"the script {path} can't be read",
            cause=error.strerror,
            hint="SCRIPT is a file on this computer; a command comes after --",
        ) from None
