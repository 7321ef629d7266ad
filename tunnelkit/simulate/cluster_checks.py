"""The findings of the login host's answer. It may hold anything: each value is bounded."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tunnelkit.diagnosis.evidence.json_fields import Fields, plain_text
from tunnelkit.scheduler.script_options import ScriptOptions, ScriptRequest
from tunnelkit.simulate.environment_checks import environment_findings
from tunnelkit.simulate.finding import Finding, Level
from tunnelkit.simulate.script_steps import ScriptNeeds
from tunnelkit.text_format import human_bytes

_LONGEST = 200_000
#: Shares of a file system from which it is nearly full, and full.
_NEARLY, _FULL = 0.95, 0.995
_MOST_ROWS = 100
#: No file system has more room.
_MOST_BYTES = float(1 << 70)
_WORDS = {
    "missing": "is not there",
    "no-directory": "is no directory",
    "closed": "may not be written by you",
    "is-directory": "is a directory",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """The subject of an answer. options: None without a scheduler."""

    options: ScriptOptions | None
    request: ScriptRequest
    needs: ScriptNeeds
    is_command: bool = False


def cluster_findings(data: Mapping[str, object], asked: Asked) -> Iterator[Finding]:
    """Yield the findings of an answer, the worst of each kind as they come."""
    answer = Fields(dict(data))
    yield from _refusals(data, answer, asked)
    yield from _directory(answer.inner("directory"), asked)
    yield from _outputs(answer, asked)
    yield from _interpreter(answer, asked)
    yield from _programs(answer, asked)
    directory = answer.inner("directory").text("path")
    yield from environment_findings(answer, asked.needs, directory)
    yield from _rooms(answer)
    yield from _quota(data)


def long_text(data: Mapping[str, object], outer: str, name: str) -> str:
    """Return a text that may be longer than a line."""
    inner = data.get(outer)
    value = inner.get(name) if isinstance(inner, dict) else None
    return plain_text(value[:_LONGEST]) if isinstance(value, str) else ""


def _refusals(data: Mapping[str, object], answer: Fields, asked: Asked) -> Iterator[Finding]:
    options = asked.options
    if options is None:
        return
    if not answer.has("refusal"):
        yield Finding("refusal", Level.UNKNOWN, f"{options.name} did not answer in time")
        return
    text = long_text(data, "refusal", "text")
    refusals = options.refusals(asked.request, answer.inner("refusal").whole("code"), text)
    if refusals is None:
        last = (text.strip().splitlines() or ["no answer"])[-1]
        yield Finding("refusal", Level.UNKNOWN, f"{options.name} could not be asked: {last[:200]}")
        return
    for one in refusals:
        yield Finding("refusal", Level.FAIL, one.text[:500], one.hint)
    if not refusals:
        what = "the request" if asked.is_command else f"{options.mark} lines"
        how = "sbatch --test-only" if options.name == "slurm" else "the queue's limits"
        yield Finding("refusal", Level.OK, f"{what}: accepted as they stand ({how})")


def _directory(found: Fields, asked: Asked) -> Iterator[Finding]:
    path, state = found.text("path"), found.text("is")
    if not path:
        yield Finding("directory", Level.UNKNOWN, "the working directory was not looked at in time")
    elif state == "ok":
        yield Finding("directory", Level.OK, "working directory")
    else:
        words = _WORDS.get(state, "can't be used")
        level = Level.WARN if state == "closed" else Level.FAIL
        hint = f"mkdir -p {shlex.quote(path)}" if state == "missing" else ""
        yield Finding("directory", level, f"the working directory {path} {words}", hint)


def _outputs(answer: Fields, asked: Asked) -> Iterator[Finding]:
    rows = answer.rows("outputs", _MOST_ROWS)
    well = 0
    for row in rows:
        state, directory = row.text("is"), row.text("directory")
        if state == "ok":
            well += 1
            continue
        words = _WORDS.get(state, "can't be used")
        end = ""
        if asked.options is not None and asked.options.name == "slurm":
            end = ": Slurm would end the job at once without a word (0:53)"
        what = row.text("path") if state == "is-directory" else f"directory {directory}"
        hint = f"mkdir -p {shlex.quote(directory)}, on the cluster" if state == "missing" else ""
        yield Finding("output", Level.FAIL, f"output {what} {words}{end}", hint)
    if rows and well == len(rows):
        yield Finding("output", Level.OK, "output directory")


def _interpreter(answer: Fields, asked: Asked) -> Iterator[Finding]:
    if not asked.needs.interpreter:
        return
    found = answer.inner("interpreter")
    path, state = found.text("path"), found.text("is")
    if state == "ok":
        yield Finding("interpreter", Level.OK, "interpreter")
    elif state == "not-executable":
        yield Finding("interpreter", Level.FAIL, f"interpreter {path} may not be executed", "", 1)
    elif state:
        text = f"interpreter {path} {_WORDS.get(state, 'can not be used')}"
        yield Finding("interpreter", Level.FAIL, text, "correct the #! line", 1)
    else:
        yield Finding("interpreter", Level.UNKNOWN, "the interpreter was not looked at in time")


def _programs(answer: Fields, asked: Asked) -> Iterator[Finding]:
    lines = dict(reversed(asked.needs.programs))
    for row in answer.rows("programs", _MOST_ROWS):
        path, state = row.text("path"), row.text("is")
        line = lines.get(path)
        if line is None:
            continue  # nobody asked for it
        if state == "not-executable":
            text = f"{path} (line {line}) is not executable"
            yield Finding("program", Level.FAIL, text, f"chmod +x {shlex.quote(path)}", line)
        elif state != "ok":
            text = f"{path} (line {line}) {_WORDS.get(state, 'can not be used')}"
            yield Finding("program", Level.WARN, text, "unless the script makes it", line)


def _rooms(answer: Fields) -> Iterator[Finding]:
    for row in answer.rows("rooms", _MOST_ROWS):
        used, inodes = min(row.number("used"), 1.0), min(row.number("inodes"), 1.0)
        path, free = row.text("path"), human_bytes(min(row.number("free_bytes"), _MOST_BYTES))
        if used >= _NEARLY:
            level = Level.FAIL if used >= _FULL else Level.WARN
            yield Finding("room", level, f"{path}: the file system is {used:.0%} full, {free} free")
        elif inodes >= _NEARLY:
            level = Level.FAIL if inodes >= _FULL else Level.WARN
            yield Finding("room", level, f"{path}: {inodes:.0%} of the number of files are used")
        else:
            yield Finding("room", Level.OK, f"file system of {path} ({used:.0%} full)")


def _quota(data: Mapping[str, object]) -> Iterator[Finding]:
    text = long_text(data, "quota", "text")
    rows = list(over_quota(text))
    for name, what in rows:
        hint = "delete or move files first; `quota -s` shows it"
        yield Finding("quota", Level.FAIL, f"your quota of {what} on {name[:200]} is used up", hint)
    if text.strip() and not rows:
        yield Finding("quota", Level.OK, "quota")


def over_quota(text: str) -> Iterator[tuple[str, str]]:
    """Yield (file system, blocks or files) of what `quota -w -p` says is used up.

    A row: name, blocks, quota, limit, grace, files, quota, limit, grace. `*` marks what is over the
    quota; until the grace is over, only the hard limit refuses."""
    for line in text.splitlines()[:200]:
        words = line.split()
        if len(words) < 9 or not words[1].rstrip("*").isdigit():
            continue
        for what, group in (("space", words[1:5]), ("files", words[5:9])):
            numbers = _numbers(group)
            if numbers is None:
                continue
            used, limit, grace = numbers
            over = group[0].endswith("*") and grace == "none"
            if (limit and used >= limit) or over:
                yield words[0], what


def _numbers(group: Sequence[str]) -> tuple[int, int, str] | None:
    used, limit = group[0].rstrip("*"), group[2]
    if not used.isdigit() or not limit.isdigit() or max(len(used), len(limit)) > 18:
        return None
    return int(used), int(limit), group[3]
