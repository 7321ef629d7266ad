"""The last words of programs in other languages: R, Julia, Fortran, MATLAB, Java, Rust, Go, C++."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tunnelkit.diagnosis.ended.case import Case
from tunnelkit.diagnosis.ended.log.marks import rank_of
from tunnelkit.diagnosis.ended.words import SEGV
from tunnelkit.diagnosis.verdict import Certainty, Evidence, NextStep, Verdict, failed_by

#: Their stack traces, and the boxes of MPI's launchers, follow; a script that went on wrote more.
_MOST_AFTER = 80
_MOST_TEXT = 200
#: forrtl: the number of a segmentation fault; those of an INT and a TERM that it received.
_FORRTL_SEGV, _FORRTL_SIGNALS = 174, frozenset({69, 78})


@dataclass(frozen=True, slots=True)
class _Language:
    """name: of the language. begins: its line. follows: on one of the next lines, or it is not the
    last word of that language. code: its exit code, None for any."""

    name: str
    begins: re.Pattern[str]
    follows: re.Pattern[str] | None = None
    code: int | None = None


@dataclass(frozen=True, slots=True)
class _Words:
    """line: its number in the log, from 0. text: its words, with what the next line adds."""

    language: _Language
    line: int
    text: str
    match: re.Match[str]


def _language(
    name: str, begins: str, follows: str | None = None, code: int | None = None
) -> _Language:
    return _Language(name, re.compile(begins), re.compile(follows) if follows else None, code)


_LANGUAGES = (
    _language("Fortran", r"forrtl: (?P<text>(?:severe|error) \((?P<number>\d{1,4})\): .*)"),
    _language("Fortran", r"Fortran runtime error: (?P<text>.+)"),
    _language("Fortran", r"(?P<text>ERROR STOP\b.*)"),
    _language("R", r"(?P<text>Error(?: in .+?)? ?: ?.*)", r"Execution halted$", code=1),
    _language("Julia", r"ERROR: (?:LoadError: )?(?P<text>.+)", r"Stacktrace:$", code=1),
    _language("MATLAB", r"\{?(?P<text>Error using \S.*)", r"Error in \S+ \(line \d+\)", code=1),
    _language("Java", r'Exception in thread "main" (?P<text>\S.*)', code=1),
    _language("Rust", r"thread '[^']*'(?: \(\d+\))? panicked at (?P<text>.+)", code=101),
    _language("Go", r"(?:panic|fatal error): (?P<text>.+)", r"goroutine \d+ \[", code=2),
)
#: How far below its first line the line is that makes it a last word.
_FOLLOWS_WITHIN = 40
_TERMINATE = re.compile(r"terminate called after throwing an instance of '(?P<type>[^']{1,200})'")
_ASSERT = re.compile(r"\S+: (?P<place>\S+?:\d+): .*?(?P<text>Assertion [`'].+' failed)\.?$")
_SAYS = re.compile(r"\s+what\(\):\s+(?P<text>.*)")


def last_words(case: Case) -> Verdict | None:
    """Rule 18a: the run-time system of another language than Python ended the program."""
    if not case.failed or case.hidden:
        return None
    found = _find(case)
    if found is None:
        return None
    number = found.match.groupdict().get("number")
    code = "segfault" if number == str(_FORRTL_SEGV) else "exception"
    return failed_by(
        code,
        f"{found.language.name}: {found.text}",
        Certainty.LIKELY,
        (Evidence(f"line {found.line + 1} of the log: {found.match[0]}"[:300], "log"),
         case.record()),
        next_steps=(NextStep("what it wrote before it", "tk logs"),),
    )  # fmt: skip


def abort_words(case: Case) -> tuple[str, Evidence] | None:
    """Return what a C or C++ library said as it aborted, with the line; None if it said nothing."""
    for number in range(len(case.lines) - 1, max(-1, len(case.lines) - 1 - _MOST_AFTER), -1):
        line = rank_of(case.lines[number][:1000])[1]
        asserted, thrown = _ASSERT.match(line), _TERMINATE.match(line)
        if asserted is not None:
            said = f"{asserted['text']}, at {asserted['place']}"
        elif thrown is not None:
            below = case.lines[number + 1] if number + 1 < len(case.lines) else ""
            words = _SAYS.match(rank_of(below[:1000])[1])
            said = thrown["type"] + (f": {words['text']}" if words is not None else "")
        else:
            continue
        return said[:_MOST_TEXT], Evidence(line[:_MOST_TEXT], "log")
    return None


def _find(case: Case) -> _Words | None:
    """Return the first of the last ones: other ranks say the same after it."""
    lines = [rank_of(line[:1000])[1] for line in case.lines]
    last = None
    for number in range(len(lines) - 1, max(-1, len(lines) - 2_000), -1):
        if last is None and case.lines_after(number) > _MOST_AFTER:
            break
        words = _words(lines, number)
        if words is not None and _is_possible(words, case):
            last = words
        if last is not None and last.line - number > _MOST_AFTER:
            break
    return last


def _words(lines: list[str], number: int) -> _Words | None:
    for language in _LANGUAGES:
        match = language.begins.match(lines[number])
        if match is None:
            continue
        below = lines[number + 1 : number + 1 + _FOLLOWS_WITHIN]
        if language.follows is not None and not _follows(language, language.follows, below):
            continue
        text = match["text"].strip()
        if text.endswith(":") and below:
            text = f"{text} {below[0].strip()}"
        return _Words(language, number, text[:_MOST_TEXT], match)
    return None


def _follows(language: _Language, wanted: re.Pattern[str], below: list[str]) -> bool:
    """Return True if it comes before another error of that language: the first was handled."""
    for line in below:
        if wanted.match(line):
            return True
        if language.begins.match(line):
            return False
    return False


def _is_possible(words: _Words, case: Case) -> bool:
    """Return False if the exit code is not that of the language, or the runtime names a signal."""
    number = words.match.groupdict().get("number")
    if number is not None and int(number) in _FORRTL_SIGNALS:
        return False
    if number == str(_FORRTL_SEGV) and case.exit.signal == SEGV:
        return False  # The signal itself is on record.
    codes = {case.exit.code, case.exit.other, *(one.code for one in case.failed_steps)}
    return words.language.code is None or words.language.code in codes or codes == {None}
