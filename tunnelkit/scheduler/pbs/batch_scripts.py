"""The batch scripts of PBS and Torque: which lines and words qsub takes for options."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tunnelkit.errors import SchedulerError, UsageError
from tunnelkit.model import Completed
from tunnelkit.scheduler.base import LoginPrograms
from tunnelkit.scheduler.batch_scripts import OwnJob
from tunnelkit.scheduler.pbs.parse import check_job_id

#: qsub's options with a value, of both dialects. All are short.
_WITH_VALUE = frozenset("aAbcCdDeFjJklmMnNopPqrStTuvwW")
#: Option -> why tk can't have it.
_REFUSED = {
    "I": "an interactive job has no script",
    "X": "an interactive job has no script",
    "z": "tk needs the job's id",
    "C": "tk would look for the options in other lines",
    "F": "the script's arguments would be another program's",
}
_BLOCKS = re.compile(r"\bblock\b|\binteractive\b")
# qselect lists what has not ended. -T: the elements of arrays, too; Torque has no -T. $1 qselect
_RUNNING = r"""
me=$(id -un)
said=$("$1" -T -u "$me" 2>/dev/null) || said=$("$1" -u "$me") || exit
printf '%s\n' "$said" | sed 's/^/tk-job /'
"""


class PbsBatchScripts(LoginPrograms):
    """See `BatchScripts`."""

    kind = "pbs"

    def takes_next(self, option: str) -> bool:
        """See `BatchScripts.takes_next`."""
        for at, letter in enumerate(option[1:], 2):
            if letter in _WITH_VALUE:
                return at == len(option)
        return False

    def header(self, script: bytes) -> bytes:
        """See `BatchScripts.header`. qsub stops at the first line that is no comment."""
        _check(script)
        lines = []
        for line in script.split(b"\n"):
            text = line.lstrip(b" \t\r\v\f")
            if text and not text.startswith(b"#"):
                break
            lines.append(line)
        if lines and lines[0].startswith(b"#!"):
            del lines[0]
        for line in lines:
            found = re.match(rb"\s*#PBS\s+(.*)", line)
            if found:
                self.argv(found[1].decode("utf-8", "surrogateescape").split())
        return b"\n".join(lines)

    def argv(self, options: Sequence[str]) -> list[str]:
        """See `BatchScripts.argv`."""
        for at, word in enumerate(options):
            why = _why_refused(word, options[at + 1] if at + 1 < len(options) else "")
            if why:
                raise UsageError(
                    f"qsub option {word!r} can't be used with tk submit",
                    cause=why,
                    hint="leave it out, on the command line and in the #PBS lines",
                )
        return [self._program("qsub"), *options]

    def check_args(self, args: Sequence[str]) -> None:
        """See `BatchScripts.check_args`."""
        if args:
            raise UsageError(
                f"qsub gives a script no arguments: {args[0]!r}",
                hint="give it variables: tk submit -v NAME=VALUE SCRIPT",
            )

    def bin_dir(self) -> str:
        """See `BatchScripts.bin_dir`."""
        return self.directory_of("qsub")

    def wake(self, job_id: str) -> list[str]:
        """See `BatchScripts.wake`."""
        return self._signal(job_id, "CONT")

    def release(self, job_id: str) -> list[str]:
        """See `BatchScripts.release`."""
        return self._signal(job_id, "TERM")

    def _signal(self, job_id: str, name: str) -> list[str]:
        number, mark, index = job_id.partition("-")
        job = check_job_id(f"{number}[{index}]" if mark else number)
        return ["timeout", "10", self._program("qsig"), "-s", name, job]

    def running(self) -> list[str]:
        """See `BatchScripts.running`. Those that wait are among them, and do no harm."""
        return ["timeout", "10", "sh", "-c", _RUNNING, "sh", self._program("qselect")]

    def parse_running(self, done: Completed) -> list[OwnJob]:
        """See `BatchScripts.parse_running`."""
        if done.exit_code != 0:
            raise SchedulerError(
                "PBS can't be asked for your jobs",
                cause=done.error_text or f"exit status {done.exit_code}",
                hint="try again in a minute",
                transient=True,
            )
        rows = re.findall(r"^tk-job ([0-9]+)(?:\[([0-9]+)\])?(?:\.(\S*)|$)", done.text, re.M)
        return [
            OwnJob(f"{number}-{index}" if index else number, "", server)
            for number, index, server in rows
        ]


def _why_refused(word: str, following: str) -> str | None:
    if not word.startswith("-") or word == "-":
        return None
    if word.startswith("--"):
        return "qsub would take it for a program instead of a script"
    for letter in word[1:]:
        if letter in _REFUSED:
            return _REFUSED[letter]
        if letter in _WITH_VALUE:
            value = word.partition(letter)[2] or following
            waits = letter == "W" and _BLOCKS.search(value)
            return "the answer would come only after the job's end" if waits else None
    return None


def _check(script: bytes) -> None:
    """Raise UsageError for what could not run as it stands."""
    refusals = (
        (not script.strip(), "is empty", "write the batch script first"),
        (b"\0" in script, "holds a NUL byte", "a batch script is text"),
        (script.startswith(b"#!") and script.split(b"\n")[0].endswith(b"\r"),
         "has DOS line ends (\\r\\n)", "turn them into Unix line ends, as by dos2unix"),
    )  # fmt: skip
    for holds, text, hint in refusals:
        if holds:
            raise UsageError(f"the script {text}", hint=hint)
