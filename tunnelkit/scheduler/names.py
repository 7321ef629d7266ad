"""The command that lists names for command line completion (nodes, partitions, jobs)."""

from __future__ import annotations

from tunnelkit.scheduler.base import Command
from tunnelkit.scheduler.detect import USUAL_DIRS

# $1: the directory of the scheduler's commands, "" for the PATH, $2: other directories that may
# have them. Each line is marked, since banners may come before. Only the first command's exit
# status decides whether the scheduler answers.
_FRAME = r"""
PATH=$PATH${1:+:$1}:$2
me=$(id -un)
code=0
%s
echo "tk-code $code"
"""


def listing(script: str, bin_dir: str) -> Command:
    """Return the command that runs `script` (sh) on the login host.

    script: prints the lines of `Scheduler.list_names`, sets `code` if the scheduler does not
    answer; `$me` is the user. bin_dir: see scheduler/detect.py."""
    return Command(("sh", "-c", _FRAME % script.strip("\n"), "sh", bin_dir, ":".join(USUAL_DIRS)))
