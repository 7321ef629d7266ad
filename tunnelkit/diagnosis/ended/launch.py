"""Jobs whose program never ran: no log file, no interpreter, no such command."""

from __future__ import annotations

import re

from tunnelkit.diagnosis.ended.case import Case
from tunnelkit.diagnosis.ended.log.stepd import STEPD
from tunnelkit.diagnosis.ended.record.script_exit import STDIO_CODE, Exit
from tunnelkit.diagnosis.verdict import Certainty, Evidence, NextStep, Verdict, failed_by

_EXEC = re.compile(
    rf"^(?P<slurm>{STEPD})?execve\(\): "
    r"(?:bad interpreter\((?P<bad>[^)]*)\)|(?P<name>\S+)): "
    r"(?P<why>No such file or directory|Permission denied|Exec format error)$"
)
_BAD_INTERPRETER = re.compile(r"(?:^|: )(?P<name>\S+): bad interpreter: ")
_NO_ENV = re.compile(
    r"^(?:/usr/bin/)?env: [‘'`]?(?P<name>[^’'`:]+)[’']?: No such file or directory"
)
NOT_FOUND = (
    re.compile(r"^\S+: line \d+: (?P<name>\S.*?): command not found$"),
    re.compile(r"^\S+: \d+: (?P<name>\S.*?): not found$"),
    re.compile(r"^\S+: line \d+: (?P<name>\S*/\S*): No such file or directory$"),
    re.compile(r"^(?:\S+:\d+: |zsh: )command not found: (?P<name>\S+)$"),
    re.compile(r"^(?:-?bash|sh): (?:line \d+: |\d+: )?(?P<name>\S+): (?:command )?not found$"),
    _NO_ENV,
)
_DENIED = (
    re.compile(r"^\S+: (?:line )?\d+: (?P<name>\S+): (?:Permission denied|cannot execute.*)$"),
    re.compile(r"^\S+: line \d+: (?P<name>\S+): Is a directory$"),
    re.compile(r"^\S+: (?:line )?\d+: (?P<name>\S+): .*Exec format error$"),
)
_CANT_EXECUTE, _NOT_THERE, _USAGE = 126, 127, 2
#: The script went on for longer after it: it was probably no reason.
_MOST_AFTER = 5
_LOGIN_SHELL = NextStep(
    "`module` is a function of login shells: begin the script with #!/bin/bash -l"
)


_NO_SCRIPT = re.compile(
    r"^\S*python[\d.]*: can't open file '(?P<name>[^']*)': \[Errno 2\] No such file or directory$"
)
#: bash ends with the code of a command that is not there for these, too.
_OTHER_127 = re.compile(r": (?:unbound variable|pid \d+ is not a child of this shell)$")
_USAGE_ERROR = re.compile(r"^\S+: error: (?P<text>.+)$")


def no_output(case: Case) -> Verdict | None:
    """Rule 8: Slurm could not open the job's output file."""
    job = case.job
    if job is None or case.state != "FAILED" or job.signal != STDIO_CODE:
        return None
    path = job.stdout_path or job.stderr_path
    gone = next((one for one in case.end.logs if one.no_directory), None)
    path = gone.path if gone is not None else path
    directory = path.rpartition("/")[0] or "/"
    because = [case.record()]
    if gone is not None:
        because.append(Evidence(f"{directory} is not there", "the login host, now"))
    return Verdict(
        "launch-output",
        f"never ran: Slurm could not open its output file {path}"
        if path
        else "never ran: Slurm could not open its output file",
        Certainty.PROVEN if gone is not None else Certainty.LIKELY,
        tuple(because),
        next_steps=(NextStep("make its directory", f"mkdir -p {directory}"),) if path else (),
    )


def not_started(case: Case) -> Verdict | None:
    """Rule 9: the interpreter or a command is not there, or can't be executed."""
    return _interpreter(case) or _command(case) or _arguments(case)


def _interpreter(case: Case) -> Verdict | None:
    for number, line in enumerate(case.lines):
        match, by_slurm = _EXEC.match(line), True
        if match is None or not match["bad"]:
            match, by_slurm = _BAD_INTERPRETER.search(line), False
        if match is None or not case.failed:
            continue
        name = match.groupdict().get("bad") or match.groupdict().get("name") or ""
        name = name.replace("^M", "\r")
        if case.exit.code not in (_USAGE, 13, _CANT_EXECUTE, _NOT_THERE):
            continue
        after = case.lines_after(number)
        exact = case.exit in (Exit(_CANT_EXECUTE), Exit(_NOT_THERE))
        if not exact and after > _MOST_AFTER:
            continue
        # Slurm says so of the script itself, and then nothing else can have run.
        never = not _ran_before(case, number)
        proven = never and by_slurm and case.exit.code in (_USAGE, 13) and not after
        dos = name.endswith(("\r", "\\r"))
        step = (
            NextStep("its lines end with CR LF: dos2unix it")
            if dos
            else NextStep(
                f"name an interpreter that the nodes have, in the script's first line; "
                f"does {name} exist there?",
                f"tk run ls -l {name}" if _plain(name) else "",
            )
        )
        certainty = Certainty.PROVEN if proven else Certainty.LIKELY
        because = (Evidence(line[:200], "log"), case.record())
        code, name = "launch-interpreter", name.strip()
        if never:
            sentence = f"never ran: its interpreter {name} is not on the node"
            return Verdict(code, sentence, certainty, because, next_steps=(step,))
        cause = f"{name}, the interpreter of a script that it ran, is not on the node"
        return failed_by(code, cause, certainty, because, next_steps=(step,))
    return None


def _ran_before(case: Case, number: int) -> bool:
    """Return True if the job did something before this line (from 0): it wrote, or ran a step."""
    wrote = case.lines_after(-1) > case.lines_after(number - 1)
    return wrote or bool(case.failed_steps) or any(one.step.isdecimal() for one in case.end.steps)


def _command(case: Case) -> Verdict | None:
    codes = {case.exit.code, *(one.code for one in case.failed_steps)}
    if _NOT_THERE in codes:
        return _named(case, "not-found", NOT_FOUND, _NOT_THERE)
    # A step that Slurm can't start ends with errno; no shell ends so for a command.
    if _USAGE in codes and case.failed_steps:
        return _arguments(case) or _named(case, "not-found", (), _NOT_THERE)
    if _CANT_EXECUTE in codes or 13 in codes:
        return _named(case, "not-executable", _DENIED, _CANT_EXECUTE)
    return None


def _arguments(case: Case) -> Verdict | None:
    """The script named a file that is not there, or arguments that its program refuses."""
    codes = {case.exit.code, *(one.code for one in case.failed_steps)}
    if _USAGE not in codes:
        return None
    last, at = case.last_line(), case.last_number()
    absent, wrong = _NO_SCRIPT.match(last), _USAGE_ERROR.match(last)
    because = (Evidence(last, "log"), case.record())
    if absent and at is not None:
        sure = case.exit.code == _USAGE and case.ends_with(at)
        return failed_by(
            "not-found",
            f"the program {absent['name']} is not there",
            Certainty.PROVEN if sure else Certainty.LIKELY,
            because,
            next_steps=(NextStep("relative paths begin at the job's working directory"),),
        )
    if wrong and any(line.startswith("usage: ") for line in case.lines[-60:]):
        return failed_by(
            "bad-arguments",
            f"its arguments were refused: {wrong['text']}",
            Certainty.LIKELY,
            because,
        )
    return None


def _named(
    case: Case, code: str, patterns: tuple[re.Pattern[str], ...], number: int
) -> Verdict | None:
    found = _last_line(case, patterns)
    # Another code: the script went on after that line. A hidden step's line may be anywhere.
    exact = case.exit == Exit(number) or case.hidden
    if found is not None and not exact and case.lines_after(found[0]) > _MOST_AFTER:
        found = None
    if found is None:
        # sacct shows 255 as 127, and 254 as 126: then the log must say it.
        if case.exit != Exit(number) or case.failure is not None or _library(case):
            return None
        if _OTHER_127.search(case.last_line()):
            return None
        words = "a command was not found" if number == _NOT_THERE else "a file can't be executed"
        return failed_by(
            code,
            f"{words} (exit code {number}); its log does not say which",
            Certainty.LIKELY,
            (case.record(),),
            next_steps=(_look(code, ""),),
        )
    at, name, line = found
    # The script may have gone on, and written to its other log.
    last = case.ends_with(at)
    steps = [_look(code, name)]
    if any(re.search(r"\bmodule: (?:command )?not found$", one) for one in case.lines):
        steps.insert(0, _LOGIN_SHELL)
    if name.endswith("\r") or "\\r" in name[-3:]:
        return _windows(case, line)
    what = (
        f"the command {name} was not found" if code == "not-found" else f"{name} can't be executed"
    )
    return failed_by(
        code,
        what,
        Certainty.PROVEN if last and case.exit == Exit(number) else Certainty.LIKELY,
        (Evidence(line[:200], "log"), case.record()),
        next_steps=tuple(steps),
    )


def _windows(case: Case, line: str) -> Verdict:
    """Its first line names a program whose name ends with a carriage return."""
    return failed_by(
        "not-found",
        "a script that it runs has the line ends of Windows (CRLF)",
        Certainty.LIKELY,
        (Evidence(line[:200], "log"), case.record()),
        next_steps=(NextStep("change them: sed -i 's/\\r$//' FILE"),),
    )


def _last_line(case: Case, patterns: tuple[re.Pattern[str], ...]) -> tuple[int, str, str] | None:
    for number in range(len(case.lines) - 1, -1, -1):
        line = case.lines[number][:1000]
        match = _EXEC.match(line)
        if match and match["name"]:
            denied = match["why"] != "No such file or directory"
            if denied == (patterns is _DENIED):
                return number, match["name"], line
        for pattern in patterns:
            match = pattern.match(line)
            if match:
                return number, match["name"], line
    return None


def _library(case: Case) -> bool:
    return case.hit("missing-library", "glibc-too-old") is not None


def _look(code: str, name: str) -> NextStep:
    if code == "not-executable":
        return NextStep(f"chmod +x {name}" if _plain(name) else "chmod +x it")
    if _plain(name):
        return NextStep(
            "load its module or set PATH in the script; is it on the node?",
            f"tk run sh -c 'command -v {name}'",
        )
    return NextStep("load its module, or set PATH in the script")


def _plain(name: str) -> bool:
    return re.fullmatch(r"[A-Za-z0-9_./+-]{1,100}", name) is not None
