"""The last line of a script's shell, of its launcher or set-up, where no program failed loudly."""

from __future__ import annotations

import re

from tunnelkit.diagnosis.ended.case import Case
from tunnelkit.diagnosis.ended.exceptions import last_hit
from tunnelkit.diagnosis.verdict import Certainty, Evidence, NextStep, Verdict, failed_by

#: The script went on for longer after it: it was probably no reason.
_MOST_AFTER = 5
#: An MPI library writes a box after it, and its launcher another.
_MOST_OF_MPI = 25
_SHELL = re.compile(
    r"^(?P<script>\S*(?:slurm_script|\.sh|\.bash|\.slurm|\.sbatch|\.pbs|\.SC|sh)): "
    r"(?:line )?(?P<line>\d{1,6}): (?P<text>\D.*)$"
)
_REASON = re.compile(r": |syntax error|Syntax error|unexpected|^`|not set|bad substitution")
_STEPS: dict[str, tuple[NextStep, ...]] = {
    "conda-not-set-up": (
        NextStep('before it, in the script: source "$(conda info --base)/etc/profile.d/conda.sh"'),
    ),
    "environment-module": (NextStep("which versions there are", "tk run bash -lc 'module avail'"),),
    "step-refused": (NextStep("ask srun for no more than the job has"),),
    "mpi-abort": (NextStep("what that rank wrote before it", "tk logs --last-error"),),
}


def set_up(case: Case) -> Verdict | None:
    """Rule 20a: srun refused a step, a module or conda is not there, or a rank called MPI_Abort."""
    if not case.exit.bad:
        return None
    hit = last_hit(case, *_STEPS)
    if hit is None:
        return None
    most = _MOST_OF_MPI if hit.mark.code == "mpi-abort" else _MOST_AFTER
    if case.lines_after(hit.line) > most:
        return None
    return failed_by(
        hit.mark.code,
        hit.sentence,
        Certainty.LIKELY,
        (Evidence(hit.text[:200], "log"), case.record()),
        next_steps=_STEPS[hit.mark.code],
    )


def shell(case: Case) -> Verdict | None:
    """Rule 20b: the shell's own words end the log: a syntax error, cd, an unset variable."""
    if not case.exit.code or case.exit.signal:
        return None
    found = None
    for line in reversed(case.lines[-10:]):
        match = _SHELL.match(line[:1000])
        if match and _REASON.search(match["text"]):
            found = match
        elif line.strip():
            break
    if found is None:
        return None
    text = found["text"][:150]
    return failed_by(
        "script-error",
        f"its shell says at line {found['line']} of the script: {text}",
        Certainty.LIKELY,
        (Evidence(found[0][:200], "log"), case.record()),
        next_steps=(NextStep("bash checks a script without running it: bash -n SCRIPT"),)
        if "syntax error" in text or "unexpected" in text
        else (),
    )
