"""Codes of jobs whose script, or what it sets up, ended them."""

from __future__ import annotations

from tunnelkit.diagnosis.codes.code import Code
from tunnelkit.diagnosis.verdict import Actor, Stage


def _code(name: str, meaning: str, found_by: str, remedy: str) -> Code:
    return Code(name, Stage.ENDED, Actor.YOU, meaning, found_by, remedy, fatal=True)


SCRIPT = (
    _code(
        "script-error",
        "The shell could not go on with the script: a syntax error, a directory that is not there, "
        "an unset variable.",
        "The log ends with the shell's own line: the script's name, a line number, the reason.",
        "Correct that line. `bash -n SCRIPT` finds syntax errors without running it.",
    ),
    _code(
        "environment-module",
        "An environment module that the script loads is not there.",
        "Lmod's or Environment Modules' line near the end of the log.",
        "`module avail` on a node shows the names and versions; `module spider` finds more.",
    ),
    _code(
        "conda-not-set-up",
        "The script calls `conda activate`, and conda is not set up in its shell.",
        "A line of conda near the end of the log. A batch script reads no .bashrc.",
        'Before it: `source "$(conda info --base)/etc/profile.d/conda.sh"`.',
    ),
    _code(
        "step-refused",
        "A step of the job could not be started: srun refused it.",
        "A line of srun near the end of the log.",
        "Ask srun for no more than the job has: tasks, CPUs, memory, nodes.",
    ),
    _code(
        "mpi-abort",
        "A rank called MPI_Abort.",
        "The MPI library's line near the end of the log names the rank and its code.",
        "What that rank wrote before it: `tk logs JOB --last-error`, `--rank R`.",
    ),
)
