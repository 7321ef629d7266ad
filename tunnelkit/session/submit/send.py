"""One user's script, submitted exactly once with tk's body around it."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tunnelkit.config.schema import Settings as TkSettings
from tunnelkit.keeper.main import Settings
from tunnelkit.scheduler.base import Command
from tunnelkit.scheduler.batch_scripts import BatchScripts
from tunnelkit.scheduler.pbs.batch_scripts import PbsBatchScripts
from tunnelkit.scheduler.script_options import is_for_pbs
from tunnelkit.scheduler.slurm.batch_scripts import SlurmBatchScripts
from tunnelkit.session.job.submission import Submission, stop
from tunnelkit.session.runtime.control_answers import SubmitAnswer
from tunnelkit.session.runtime.kept_note import note_submitted
from tunnelkit.session.submit.job_body import job_body
from tunnelkit.session.submit.login import Login, prepare

#: Seconds before the time limit at which a kept job is let go; for tests another one.
MARGIN_S, MARGIN_VARIABLE = 300.0, "TK_KEEP_MARGIN_S"

# $1 the script's name, $2 the directory to work in, $3 tk's directory for jobs, $4 the number of
# the words before the script; then the words of sbatch and of the script. stdin: what is sent.
# sbatch gets a file of that name, from which Slurm takes the job's name.
_STAGE = r"""
name=$1 work=$2 jobs=$3 before=$4
shift 4
find "$jobs" -maxdepth 1 -name 'submit-*.sub-*' -mtime +1 -exec rm -rf {} + 2>/dev/null
stage=$(mktemp -d) || exit 73
trap 'rm -rf "$stage"' EXIT
cat >"$stage/$name" && cd -- "$work" || exit 73
left=$# at=0
while [ $at -lt $left ]; do
  [ $at -ne "$before" ] || set -- "$@" "$stage/$name"
  set -- "$@" "$1"
  shift
  at=$((at + 1))
done
[ $left -ne "$before" ] || set -- "$@" "$stage/$name"
"$@"
"""


@dataclass(frozen=True)
class UserScript:
    """A script to submit.

    name: its file's. options: for sbatch. args: its arguments. keep_s: 0: not kept if it fails.
    idle_s: let go after so long without anybody. most: elements of a job array that are kept.
    stand_s: 0: no Python of it is kept at an exception.
    """

    name: str
    text: bytes
    options: Sequence[str]
    args: Sequence[str]
    keep_s: float = 0.0
    idle_s: float = 1200.0
    most: int = 1
    stand_s: float = 0.0


def _body(script: UserScript, scripts: BatchScripts, kept: str, python: str) -> bytes:
    """Return what is sent. kept: the directory of kept jobs' files."""
    settings = Settings(
        script.keep_s,
        script.idle_s,
        margin_s(),
        script.most,
        kept,
        scripts.bin_dir(),
        script.stand_s,
        scheduler=scripts.kind,
    )
    return job_body(script.text, scripts.header(script.text), settings, python)


def preview(script: UserScript, settings: TkSettings) -> bytes:
    """Return what would be sent. Raises UsageError for what sbatch would refuse."""
    is_pbs = settings.cluster.scheduler in ("pbs", "torque") or is_for_pbs(script.text)
    scripts = PbsBatchScripts() if is_pbs else SlurmBatchScripts()
    scripts.argv(script.options)
    scripts.check_args(script.args)
    kept = f"{settings.cluster.directory}/kept"
    return _body(script, scripts, kept, settings.cluster.python)


def margin_s() -> float:
    """Return the seconds before the time limit at which kept jobs are let go."""
    try:
        return float(os.environ.get(MARGIN_VARIABLE, MARGIN_S))
    except ValueError:
        return MARGIN_S


def mirrored_dir(settings: TkSettings, here: Path) -> str:
    """Return the place of a local directory in the mirror; "" if it is not mirrored."""
    if not settings.mirror.enabled or settings.config_file is None:
        return ""
    try:
        inside = here.resolve().relative_to(settings.project_dir.resolve())
    except ValueError:
        return ""
    remote = settings.mirror.remote.rstrip("/")
    return remote if inside == Path() else f"{remote}/{inside.as_posix()}"


async def submit(login: Login, script: UserScript, here: Path) -> SubmitAnswer:
    """Submit a script from a local directory; return the job's id and what sbatch said.

    A lost reply never submits it twice. Raises SchedulerError, ConnectionFailed, UsageError."""
    argv = login.scripts.argv(script.options)
    login.scripts.check_args(script.args)
    login.scripts.header(script.text)
    places = await prepare(login, mirrored_dir(login.settings, here))
    words = (script.name, places.work, places.jobs, str(len(argv)), *argv, *script.args)
    body = _body(script, login.scripts, places.kept, login.settings.cluster.python)
    command = Command(("sh", "-c", _STAGE, "sh", *words), body)
    cancel = login.scheduler.cancel("1").argv[:-1]
    name = f"submit-{secrets.token_hex(8)}"
    submission = Submission(login.run, command, cancel, jobs_dir=places.jobs, name=name)
    try:
        done = await submission.answer(lambda seconds: None)
    except asyncio.CancelledError:
        await asyncio.shield(stop(login.run, places.jobs, name, submission))
        raise
    job = login.scheduler.parse_submit(done)
    if script.keep_s or script.stand_s:
        note_submitted(login.name, re.split(r"[;.\[]", job)[0])
    return {
        "job": job,
        "cluster": login.name,
        "directory": places.work,
        "said": done.error_text,
    }
