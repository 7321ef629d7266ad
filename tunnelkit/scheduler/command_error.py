"""The errors of scheduler commands that failed: their own messages, with hints."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tunnelkit.errors import SchedulerError
from tunnelkit.model import Completed


@dataclass(frozen=True)
class CommandErrors:
    """The error messages of one scheduler's commands.

    scheduler, server: its names, as users know them. programs: matches its commands' names.
    message_of: a command's message without prefixes. verdict_of: the part of stderr that tells
    whether the server could be asked. transient: matches it if the server could not. hints: pattern
    of the message -> hint; the first match counts.
    """

    scheduler: str
    server: str
    programs: str
    message_of: Callable[[Completed], str]
    verdict_of: Callable[[str], str]
    transient: re.Pattern[str]
    hints: Sequence[tuple[str, str]]

    def is_transient(self, error_text: str) -> bool:
        """True if the server could not be asked at all, rather than said no."""
        return bool(self.transient.search(self.verdict_of(error_text)))

    def refusal(self, what: str, done: Completed) -> SchedulerError:
        """Return the error for a command that failed: the scheduler's message, with a hint."""
        said = self.message_of(done)
        if done.exit_code == 127 or self._is_absent(done.error_text):
            return SchedulerError(
                what,
                cause=said or "the command was not found",
                hint=f"is this a {self.scheduler} login host? "
                'set scheduler = "none" if it has no scheduler',
            )
        if self.is_transient(done.error_text):
            return SchedulerError(
                what,
                cause=said,
                hint=f"{self.server} does not answer now; try again in a minute",
                transient=True,
            )
        hint = next((hint for pattern, hint in self.hints if re.search(pattern, said, re.I)), None)
        return SchedulerError(what, cause=said or f"exit status {done.exit_code}", hint=hint)

    def _is_absent(self, error_text: str) -> bool:
        """True if the login shell has not found the command: csh has no exit status for that.

        What the shell's start files have not found stands before what the command prints."""
        last = error_text.strip().rpartition("\n")[2]
        return bool(re.search(rf"\b(?:{self.programs}): command not found", last, re.IGNORECASE))

    def job_id(
        self, done: Completed, form: re.Pattern[str], *, program: str, lists: str, refused: str
    ) -> str:
        """Return the id that a submission printed: the first group of `form`.

        lists: the program that lists jobs. refused: the message of the error if it failed. Raises
        SchedulerError.
        """
        # A login banner or a site's job filter may print lines before it.
        lines = [line.strip() for line in done.text.splitlines() if line.strip()]
        if done.exit_code != 0:
            raise self.refusal(refused, done)
        if lines and (match := form.fullmatch(lines[-1])):
            return match[1]
        # The job may exist under an id that could not be read: query with `find` first.
        raise SchedulerError(
            f"{program} answered without a job id",
            cause=" / ".join(lines[-2:]) or self.message_of(done) or None,
            transient=True,
            hint=f"tk looks whether the job is there before it asks again; see {lists}",
        )
