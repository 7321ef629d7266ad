"""Faults of a script's text, whatever the cluster says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tunnelkit.scheduler.script_options import ScriptOptions, ScriptRequest
from tunnelkit.simulate.finding import Finding, Level

_SPACE = b" \t\n\v\f\r"


def text_findings(
    script: bytes, options: ScriptOptions, request: ScriptRequest
) -> Iterator[Finding]:
    """Yield what is wrong with the text, and `ok` for what is right."""
    if not script.strip(_SPACE):
        yield Finding("script", Level.FAIL, "the script is empty", "write the batch script first")
        return
    if b"\0" in script:
        yield Finding("script", Level.FAIL, "the script holds a NUL byte", "a script is text")
    yield _line_ends(script, options.name)
    yield from _first_line(script, options.name)
    late = options.late(script)
    if late:
        yield _late(late, options.mark)
    for text in request.unread:
        hint = f"see `man {'sbatch' if options.name == 'slurm' else 'qsub'}`"
        yield Finding("options", Level.WARN, f"{text} can't be read", hint)


def _line_ends(script: bytes, scheduler: str) -> Finding:
    if b"\r\n" not in script:
        return Finding("line-ends", Level.OK, "line ends")
    number = script[: script.index(b"\r\n")].count(b"\n") + 1
    refuses = "sbatch refuses them" if scheduler == "slurm" else r"the shell takes \r for a word"
    text = rf"line {number} ends with \r\n, as on Windows: {refuses}"
    return Finding("line-ends", Level.FAIL, text, "dos2unix, or: sed -i 's/\\r$//' SCRIPT", number)


def _first_line(script: bytes, scheduler: str) -> Iterator[Finding]:
    if script.startswith(b"#!") and script[2:].split(b"\n")[0].strip(_SPACE):
        return
    if script.startswith(b"\xef\xbb\xbf#!"):
        text = "an invisible mark (UTF-8's BOM) stands before #!"
        yield Finding("interpreter", Level.FAIL, text, "save it as UTF-8 without BOM", 1)
    elif scheduler == "slurm":
        text = "the first line is no #! line: sbatch refuses such a script"
        yield Finding("interpreter", Level.FAIL, text, "begin it with #!/bin/bash", 1)
    else:
        text = "the first line is no #! line: your login shell runs the script"
        yield Finding("interpreter", Level.WARN, text, "begin it with #!/bin/bash", 1)


def _late(lines: Sequence[int], mark: str) -> Finding:
    shown = ", ".join(map(str, lines[:5])) + (", ..." if len(lines) > 5 else "")
    many = len(lines) > 1
    text = (
        f"{mark} in line{'s' if many else ''} {shown} {'stand' if many else 'stands'} after the "
        "first command: nobody reads it"
    )
    return Finding(
        "options", Level.FAIL, text, "move it above the first command, below #!", lines[0]
    )
