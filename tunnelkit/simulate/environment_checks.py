"""The findings about modules, environments and imports, from the login host's answer."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

from tunnelkit.diagnosis.evidence.json_fields import Fields
from tunnelkit.simulate.finding import Finding, Level
from tunnelkit.simulate.script_steps import ScriptNeeds, Step

_MOST_ROWS, _MOST_NAMES = 200, 6
#: The kind of row that answers a kind of step.
_ROW_OF = {"module": "module", "cd": "cd", "venv": "into", "conda": "into", "python": "python"}


def environment_findings(answer: Fields, needs: ScriptNeeds, directory: str) -> Iterator[Finding]:
    """Yield what the script's steps found. directory: the job's, for short paths."""
    if needs.unread:
        text = f"what line {needs.unread} does only the job will know: not all after it was checked"
        yield Finding("imports", Level.UNKNOWN, text, "", needs.unread)
    if not needs.steps:
        return
    found = answer.inner("steps")
    problem = found.text("problem") or answer.text("steps-problem")
    if not answer.has("steps") or problem:
        why = f": {problem}" if problem else " in time"
        yield Finding("modules", Level.UNKNOWN, f"modules and imports were not looked at{why}")
        return
    reader = _Reader(needs, directory)
    rows = found.rows("rows", _MOST_ROWS)
    yield from reader.findings(rows)


class _Reader:
    """Reads the rows in order: what a step lacks explains what follows."""

    def __init__(self, needs: ScriptNeeds, directory: str) -> None:
        self._needs = needs
        self._directory = directory
        self._lost = ""
        self._modules_well = 0
        self._own_modules = False
        self._into = ""

    def findings(self, rows: Sequence[Fields]) -> Iterator[Finding]:
        """Yield the findings of all rows."""
        there = {row.whole("step"): row.text("text") for row in rows if row.text("kind") == "avail"}
        for row in rows:
            number = row.whole("step")
            # The first step is the working directory, which is not the script's.
            step = self._needs.steps[number - 1] if 0 < number <= len(self._needs.steps) else None
            if step is None:
                continue
            kind = row.text("kind")
            if kind == "own" and step.kind in ("module", "python"):
                yield from self._not_run(step, by_modules=not row.text("text"))
                continue
            if kind != _ROW_OF.get(step.kind):
                continue  # no answer to what was asked
            if kind == "module":
                yield from self._module(row, step, there.get(number, ""))
            elif kind == "cd" and row.whole("code"):
                self._lost = f"{step.words[0]} is not there"
                text = f"directory {step.words[0]} (line {step.line}) is not there"
                yield Finding(
                    "directory", Level.WARN, text, "unless the script makes it", step.line
                )
            elif kind == "into":
                yield from self._entered(row, step)
            elif kind == "python":
                yield from self._python(row, step)
        if self._modules_well:
            many = "" if self._modules_well == 1 else "s"
            yield Finding("modules", Level.OK, f"{self._modules_well} module{many}")

    def _module(self, row: Fields, step: Step, there: str) -> Iterator[Finding]:
        name = " ".join(step.words[1:])
        code = row.whole("code")
        if code == 0:
            self._modules_well += 1
        elif code == 127:
            text = f"module {name} (line {step.line}): this host has no module command"
            yield Finding("modules", Level.UNKNOWN, text, "the nodes may have one", step.line)
            self._lost = "the modules can't be loaded here"
        elif step.words[0] == "load":
            self._lost = f"module {name} is not there"
            names = alternatives(there, name)
            also = f": there are {', '.join(names)}" if names else ": there is no such module"
            yield Finding("modules", Level.FAIL, f"module {name}{also}", "", step.line)
        else:
            text = f"module {' '.join(step.words)}: {_last_line(row.text('text'))}"
            yield Finding("modules", Level.WARN, text, "", step.line)

    def _not_run(self, step: Step, *, by_modules: bool) -> Iterator[Finding]:
        """Say that the check runs nothing of the mirrored directory: it may be a clone's."""
        if step.kind == "python":
            what = "what it loads" if by_modules else step.words[0]
            why = self._lost or f"{what} lies in the project, of which a check runs nothing"
            text = f"the imports of {self._what(step)} were not looked for: {why}"
            yield Finding("imports", Level.UNKNOWN, text, "", step.line)
        elif not self._own_modules:
            self._own_modules = True
            text = f"module {' '.join(step.words)} (line {step.line}) was not done"
            text += ": its modules lie in the project, of which a check runs nothing"
            yield Finding("modules", Level.UNKNOWN, text, "", step.line)

    def _what(self, step: Step) -> str:
        return "the script" if self._needs.is_python else step.words[2]

    def _entered(self, row: Fields, step: Step) -> Iterator[Finding]:
        place = row.text("text")
        if row.whole("code") == 0:
            # Its interpreter is its own, whatever modules lack.
            self._into, self._lost = place, ""
            return
        self._lost = f"{place} is not there"
        what = "conda environment" if step.kind == "conda" else "environment"
        text = f"{what} {step.words[0]} (line {step.line}) is not there"
        yield Finding("environment", Level.FAIL, text, "", step.line)

    def _python(self, row: Fields, step: Step) -> Iterator[Finding]:
        interpreter, what = step.words[0], self._what(step)
        at = f"{what} (line {step.line})" if not self._needs.is_python else what
        report = row.inner("report")
        if self._lost:
            text = f"the imports of {what} were not looked for: {self._lost}"
            yield Finding("imports", Level.UNKNOWN, text, "", step.line)
        elif not row.has("report"):
            if row.whole("code") in (126, 127):
                yield Finding("python", Level.FAIL, f"{interpreter}, for {at}, is not there", "", step.line)  # fmt: skip  # noqa: E501
            else:
                text = f"the imports of {what}: {interpreter} gave no answer"
                yield Finding("imports", Level.UNKNOWN, text, "", step.line)
        elif report.text("problem"):
            yield self._unread(report.text("problem"), at, step)
        else:
            yield from self._report(report, what, step)

    def _unread(self, problem: str, at: str, step: Step) -> Finding:
        text, hint = f"{at} can't be read: {problem}", "has it been mirrored, or copied there?"
        if problem.startswith("No such file") and 0 < self._needs.makes <= step.line:
            hint = f"unless the script makes it: line {self._needs.makes} may"
            return Finding("python", Level.WARN, text, hint, step.line)
        return Finding("python", Level.FAIL, text, hint, step.line)

    def _report(self, report: Fields, what: str, step: Step) -> Iterator[Finding]:
        python = f"{self._short(report.text('python'))} ({report.text('version')})"
        wrong = [text for text in report.items("errors") if isinstance(text, str)]
        for text in wrong[:_MOST_NAMES]:
            short = self._short(text[:400])
            yield Finding("python", Level.FAIL, f"{short}, by {python}", "", step.line)
        missing = report.rows("missing", _MOST_NAMES * 4)
        sure = [one for one in missing if one.flag("needed")]
        for one in sure[:_MOST_NAMES]:
            entered = ", which the script activates" if self._into else ""
            place = f" ({self._short(one.text('file'))}:{one.whole('line')})" if one.text("file") else ""  # fmt: skip  # noqa: E501
            text = f"import {one.text('name')}{place}: not in {python}{entered}"
            yield Finding("imports", Level.FAIL, text, "", step.line)
        if len(sure) > _MOST_NAMES:
            text = f"{len(sure) - _MOST_NAMES} more imports of {what} are not there"
            yield Finding("imports", Level.FAIL, text, "", step.line)
        later = sorted({one.text("name") for one in missing if not one.flag("needed")})
        if later:
            names = ", ".join(later[:_MOST_NAMES])
            text = f"imported in functions or under a condition, and not in {python}: {names}"
            yield Finding("imports", Level.WARN, text, "", step.line)
        if not wrong and not sure:
            yield Finding("imports", Level.OK, f"imports of {what}, by {python}", "", step.line)

    def _short(self, path: str) -> str:
        if self._directory and path.startswith(self._directory + "/"):
            return path[len(self._directory) + 1 :]
        return path


def alternatives(text: str, name: str) -> list[str]:
    """Return the modules of `module -t avail` that are like this one: same name, other version."""
    base = name.partition("/")[0]
    found = []
    for line in text.splitlines()[:500]:
        word = re.sub(r"\((?:default|[A-Z,]+)\)$|[*]$", "", line.strip())
        if word.partition("/")[0] == base and "/" in word and not word.endswith(("/", ":")):
            found.append(word)
    return [os.path.basename(one) if at else one for at, one in enumerate(found[:_MOST_NAMES])]


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it failed"
