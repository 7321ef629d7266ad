"""Begins in the job: puts the user's script in its place, runs it, keeps the job if it fails."""

import os
import traceback
from types import MappingProxyType
from typing import Dict, List, Mapping, NamedTuple, NoReturn, Optional

from tunnelkit.keeper.kept_files import KeptFiles, Value
from tunnelkit.keeper.pbs_job import make
from tunnelkit.keeper.programs import Programs
from tunnelkit.keeper.script_process import End, How, end_like, run
from tunnelkit.keeper.slurm_job import SlurmJob
from tunnelkit.keeper.waiting import Cause, Job, Keeping, Terms, how, say


class Settings(NamedTuple):
    """keep_s: if the script fails; 0: the job isn't kept. stand_s: if a Python of it dies of an
    exception; 0: it isn't kept there. most: elements of a job array that are kept.

    directory: of the kept jobs' files. bin_dir: of the scheduler's commands, or "". hook: the
    files for the script's Pythons. scheduler: "slurm" or "pbs".
    """

    keep_s: float
    idle_s: float
    margin_s: float
    most: int
    directory: str
    bin_dir: str
    stand_s: float = 0.0
    hook: Mapping[str, str] = MappingProxyType({})
    scheduler: str = "slurm"


def main(path: bytes, script: bytes, environ: bytes, settings: Settings) -> NoReturn:
    """Run the script as if the scheduler had started it, and end as it ends.

    path: the scheduler's copy of what was sent, in whose place the script is put. environ: as the
    job has it.
    """
    with open(path, "wb") as file:
        file.write(script)
    variables = parse_environ(environ)
    given = dict(variables)
    ignored = int(os.environ.get("TK_IGNORED", "0"), 16)
    is_pbs = settings.scheduler == "pbs"
    job: Job = (
        make(variables, settings.bin_dir) if is_pbs else SlurmJob(variables, settings.bin_dir)
    )
    if job.job_id:
        KeptFiles(settings.directory, job.job_id).remove_earlier(job.cluster)
    programs = None
    if settings.stand_s:
        programs = watch_programs(job, given, settings)
    how_run = How(ignored, witnessed=is_pbs or signals_all(), leads=not is_pbs)
    end = run(path, script_words(), given, how_run, programs)
    kept = programs is not None and programs.close()
    if settings.keep_s and end.failed and not end.cancelled and not kept:
        try:
            keep(job, settings, end)
        except Exception:
            say(f"the job can't be kept: {traceback.format_exc(limit=3)}")
    end_like(end)


def watch_programs(job: Job, given: Dict[bytes, bytes], settings: Settings) -> Optional[Programs]:
    """Prepare the script's environment so that its Pythons stand at their exceptions."""
    if not job.job_id:
        say(f"no program is kept at an exception: {job.variable} is not set")
        return None
    files = KeptFiles(settings.directory, job.job_id)
    standing = files.standing()
    if not standing.put(settings.hook):
        say(f"no program is kept at an exception: {standing.directory} can't be written")
        return None
    own, before = os.fsencode(standing.directory), given.get(b"PYTHONPATH", b"")
    given[b"PYTHONPATH"] = own + b":" + before if before else own

    def start(cause: Cause) -> Optional[Keeping]:
        if not _may_be_kept(job, files, settings.most):
            say(f"{cause.story}; not kept: {settings.most} of this job array were")
            return None
        terms = Terms(settings.stand_s, settings.idle_s, settings.margin_s)
        return Keeping(job, files, terms, cause, _facts(job))

    return Programs(standing, start)


def keep(job: Job, settings: Settings, end: End) -> None:
    """Keep the job, unless another element of its array is kept."""
    if not job.job_id:
        say(f"the job isn't kept: {job.variable} is not set")
        return
    files = KeptFiles(settings.directory, job.job_id)
    if not _may_be_kept(job, files, settings.most):
        say(f"{how(end)}; not kept: {settings.most} of this job array were")
        return
    facts = _facts(job)
    facts["code"], facts["signal"] = end.code, end.signal
    terms = Terms(settings.keep_s, settings.idle_s, settings.margin_s)
    cause = Cause(f"the script ended with {how(end)}", f"after {how(end)}")
    keeping = Keeping(job, files, terms, cause, facts)
    reason = keeping.run()
    say(f"{reason}: the job ends with {how(end)}, after {keeping.taken()}")


def _may_be_kept(job: Job, files: KeptFiles, most: int) -> bool:
    """Return True unless all places of the job's array are taken."""
    return not job.group or bool(files.take_place(job.group, most))


def _facts(job: Job) -> Dict[str, Value]:
    """Return what is known of the job."""
    facts: Dict[str, Value] = dict(job.resources())
    facts.update(node=job.node, name=job.name, array=job.array, cluster=job.cluster)
    return facts


def parse_environ(data: bytes) -> Dict[bytes, bytes]:
    """Return the variables of /proc/PID/environ."""
    pairs = [one.partition(b"=") for one in data.split(b"\0")]
    return {name: value for name, mark, value in pairs if name and mark}


def script_words() -> List[bytes]:
    """Return the script's arguments: the last words of this process, byte for byte."""
    import sys

    with open("/proc/self/cmdline", "rb") as file:
        words = file.read().split(b"\0")[:-1]
    count = len(sys.argv) - 2  # -c and the path come first
    return words[-count:] if count else []


def signals_all() -> bool:
    """Return False if Slurm tracks the job by cgroups: then it signals this process alone."""
    try:
        with open("/proc/self/cgroup") as file:
            return "/step_batch" not in file.read()
    except OSError:
        return True
