"""Last lines of a job's log, which tell why the job ended."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from tunnelkit.errors import TunnelkitError
from tunnelkit.model import Completed
from tunnelkit.scheduler.base import Command
from tunnelkit.text_format import shown

Run = Callable[[Command], Awaitable[Completed]]
#: Hint for a job that ended before its agent started.
HINT = (
    "without a log the home may be read-only or full on the node: set [cluster] directory"
    " to one that can be written there"
)
_LINES = 3
_MOST_CHARACTERS = 400
# Lines that the scheduler itself writes about the job's end; they add nothing to it.
_NOISE = re.compile(
    r"(?:(?:slurmstepd|srun): |\[\d{4}-[\d:.T-]+\] error: ).*(?:JOB|STEP) .* ON .* "
    r"(?:CANCELLED|FAILED)|Terminated$"
)
# $1 tk's directory of jobs, then the names that the log may have. A network file system may show a
# file of another host late.
_READ = r"""
cd "$1" || exit
shift
for look in 1 2 3 4 5; do
  for name; do
    [ -s "./$name" ] && { echo tk-log; tail -c 4096 "./$name"; exit; }
  done
  ls >/dev/null
  sleep 0.2
done
"""


async def last_words(run: Run, jobs_dir: str, job_id: str, job_name: str) -> str:
    """Return the end of a job's log in one line, or why there is none. Never raises."""
    number = re.sub(r"[^0-9].*", "", job_id)
    names = (f"{number}.log", f"{job_name}.log")
    try:
        done = await run(Command(("sh", "-c", _READ, "sh", jobs_dir, *names)))
    except TunnelkitError:
        return "its log can't be read"
    _, mark, text = done.text.partition("tk-log\n")
    return _in_one_line(text) if mark else f"it left no log in {jobs_dir}"


def _in_one_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not _NOISE.search(line)]
    if not lines:
        return "its log says nothing"
    told = " | ".join(lines[-_LINES:])
    return "its log ends: " + shown(told[-_MOST_CHARACTERS:])
