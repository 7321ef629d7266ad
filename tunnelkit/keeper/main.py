"""Begins in the job: puts the user's script in its place, runs it, keeps the job if it fails."""

import os
import traceback
from typing import Dict, List, NamedTuple, NoReturn

from tunnelkit.keeper.kept_files import KeptFiles, Value
from tunnelkit.keeper.script_process import End, end_like, run
from tunnelkit.keeper.slurm_job import SlurmJob, node_name, resources
from tunnelkit.keeper.waiting import Keeping, Terms, cost, how, minutes, say


class Settings(NamedTuple):
    """keep_s: 0: the job isn't kept. most: elements of a job array that are kept.

    directory: of the kept jobs' files. bin_dir: of Slurm's commands, or "".
    """

    keep_s: float
    idle_s: float
    margin_s: float
    most: int
    directory: str
    bin_dir: str


def main(path: bytes, script: bytes, environ: bytes, settings: Settings) -> NoReturn:
    """Run the script as if Slurm had started it, and end as it ends.

    path: Slurm's copy of what was sent, in whose place the script is put. environ: as Slurm gave
    it to the job.
    """
    with open(path, "wb") as file:
        file.write(script)
    variables = parse_environ(environ)
    ignored = int(os.environ.get("TK_IGNORED", "0"), 16)
    end = run(path, script_words(), dict(variables), ignored, signals_all())
    if settings.keep_s and end.failed and not end.cancelled:
        try:
            keep(variables, settings, end)
        except Exception:
            say(f"the job can't be kept: {traceback.format_exc(limit=3)}")
    end_like(end)


def keep(variables: Dict[bytes, bytes], settings: Settings, end: End) -> None:
    """Keep the job, unless another element of its array is kept."""
    job_id = os.fsdecode(variables.get(b"SLURM_JOB_ID", b""))
    if not job_id.isdigit():
        say("the job isn't kept: SLURM_JOB_ID is not set")
        return
    files = KeptFiles(settings.directory, job_id)
    group = os.fsdecode(variables.get(b"SLURM_ARRAY_JOB_ID", b""))
    if group.isdigit() and not files.take_place(group, settings.most):
        say(f"{how(end)}; not kept: {settings.most} of this job array were")
        return
    facts: Dict[str, Value] = dict(resources(variables))
    facts["node"] = node_name(variables)
    facts["name"] = os.fsdecode(variables.get(b"SLURM_JOB_NAME", b""))[:100]
    task = os.fsdecode(variables.get(b"SLURM_ARRAY_TASK_ID", b""))
    facts["array"] = f"{group}_{task}" if group.isdigit() and task.isdigit() else None
    terms = Terms(settings.keep_s, settings.idle_s, settings.margin_s)
    keeping = Keeping(SlurmJob(job_id, variables, settings.bin_dir), files, terms, end, facts)
    reason = keeping.run()
    spent_s = keeping.spent_s()
    taken = f"{minutes(spent_s)} ({cost(facts, spent_s)})"
    say(f"{reason}: the job ends with {how(end)}, after {taken}")


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
