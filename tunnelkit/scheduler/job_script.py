"""The job's script: the sh body that holds the allocation and runs the agent in it.

It works with every scheduler and with dash. Its status file proves the job's end where the
scheduler forgets jobs (Slurm drops records after MinJobAge, and accounting may be off).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tunnelkit.errors import UsageError
from tunnelkit.scheduler.base import Command

# Shells start background commands with SIGINT and SIGQUIT ignored, a debuggee would inherit
# that and ignore Ctrl-C; newer `env` undoes it.
#
# The prologue runs in a shell of its own (bash if there is one, since users write `source` and
# `module`), which then becomes the agent: a `set -e`, `trap` or `exit` in it can't harm this
# script, and the agent has the pid of that shell. USR1 is caught while the prologue runs,
# as its default would kill it; not ignored, since that would be inherited.
#
# The status file is private, but files of the user's processes keep the user's umask.
#
# A forked child has this script's traps for a moment, and dash drops signals that come then.
# A TERM in that moment would never reach the agent. So the script leaves a mark before it
# passes a TERM on, and the child checks the mark once it has set its own traps.
#
# Slurm drops the TERM of a cancellation that comes while the step is being launched: the job
# would run on until KillWait is over. So who cancels leaves a mark first (`cancelling`). An old
# one is of another job: after a new installation of Slurm the ids begin with 1 again.
#
# `wait` returns when a trap has run, too, with the signal's code. Then the agent is still there
# (a zombie counts), or the shell has reaped it in that very moment, as where the scheduler sends
# TERM to all processes of the job: only another wait has its code. After a wait that had it
# already the second one says 127, and bash -1 if it has lost the code in that moment; then the
# signal's code counts.
#
# The black box (probe/black_box/box.py) is the agent's sibling: it sees the agent's end, and
# outlives it.
# Once the script's status has the exit code, the box writes its last record. A home that does not
# answer must not keep the job, so the script waits 2 s for that at most.
_BODY = """\
tk_umask=$(umask)
umask 077
tk_status={status_file}{suffix}
tk_mark=$tk_status.$$.end
mkdir -p -- "$(dirname -- "$tk_status")"
tk_node=${{SLURMD_NODENAME:-$(uname -n)}}
tk_tell() {{ printf '%s\\n' "$1" >"$tk_status.$$" && mv -f -- "$tk_status.$$" "$tk_status"; }}
tk_box=
tk_close_box() {{
  [ -n "$tk_box" ] && kill -USR2 "$tk_box" 2>/dev/null || return 0
  tk_looks=0
  while [ "$tk_looks" -lt 40 ] && kill -0 "$tk_box" 2>/dev/null; do
    tk_looks=$((tk_looks + 1))
    sleep 0.05
  done
}}
tk_leave() {{
  tk_tell "ended $1"
  tk_close_box
  rm -f -- "$tk_mark" "$tk_status{cancelled}"
  exit "$1"
}}
[ -z "$(find "$tk_status{cancelled}" -mmin -60 2>/dev/null)" ] || tk_leave 143
tk_agent=
tk_ended=
tk_end() {{
  tk_ended=143
  printf '' >"$tk_mark"
  [ -z "$tk_agent" ] || kill -TERM "$tk_agent" 2>/dev/null
}}
trap tk_end TERM
trap '[ -z "$tk_agent" ] || kill -USR1 "$tk_agent" 2>/dev/null' USR1
tk_shell=$(command -v bash || command -v sh)
tk_prologue={prologue}
set -- "$tk_shell" -c "trap tk_warned=1 USR1
$tk_prologue
exec \\"\\$@\\"" tk-holder {agent_argv}
if env --default-signal=INT,QUIT true 2>/dev/null; then
  set -- env --default-signal=INT,QUIT "$@"
fi
[ -z "$tk_ended" ] || tk_leave "$tk_ended"
umask "$tk_umask"
{{ [ ! -e "$tk_mark" ] || exit 143; exec "$@"; }} </dev/null &
tk_agent=$!
umask 077
[ -z "$tk_ended" ] || kill -TERM "$tk_agent" 2>/dev/null
tk_tell "running $tk_node $tk_agent"
{box}while :; do
  wait "$tk_agent"
  tk_code=$?
  kill -0 "$tk_agent" 2>/dev/null || break
done
wait "$tk_agent" 2>/dev/null
tk_again=$?
case $tk_again in -1 | 127) ;; *) tk_code=$tk_again ;; esac
tk_leave "$tk_code"
"""

# It reads the status file, which has the job's number.
_BOX = """\
{{ exec {box_argv} "$tk_status"{where}; }} </dev/null >/dev/null 2>&1 &
tk_box=$!
"""

# `module` is a function of login shells, and a job's shell is not a login shell.
_MODULE_INIT = """\
if ! command -v module >/dev/null 2>&1; then
  for tk_init in /etc/profile.d/lmod.sh /etc/profile.d/z00_lmod.sh /etc/profile.d/modules.sh \\
    /usr/share/lmod/lmod/init/profile /usr/share/modules/init/sh; do
    if [ -r "$tk_init" ]; then . "$tk_init"; break; fi
  done
fi
"""

#: Suffix of the status file: `.4711`, the number of the job's id.
_JOB_NUMBER = """\
.$(printf '%s' "${SLURM_JOB_ID:-$PBS_JOBID}" | sed 's/[^0-9].*//')"""

#: Suffix of a job's mark that it is cancelled, beside its status file.
_CANCELLED = ".cancelled"

#: The line before a status file's content: a login shell may print a greeting first.
STATUS_MARK = "tk-status"

_STATUS = re.compile(r"(?:running (?P<node>\S+) (?P<pid>\d+)|ended (?P<code>\d+))\n?")


@dataclass(frozen=True, slots=True)
class HolderStatus:
    """Content of a status file: the agent runs on `node` as `pid`, or ended with `exit_code`."""

    node: str | None = None
    pid: int | None = None
    exit_code: int | None = None

    @property
    def ended(self) -> bool:
        """Return True once the script has ended."""
        return self.exit_code is not None


def body(
    *,
    agent_argv: Sequence[str],
    prologue: str,
    status_file: str,
    per_job: bool = False,
    box_argv: Sequence[str] = (),
) -> str:
    """Return the job's sh body, without shebang.

    prologue: sh lines that set up the agent's environment; if one of them exits, the job
    ends with that code. Words of `agent_argv` and `status_file` may start with `~/`. USR1
    (the time limit is near) and TERM reach the agent, whose exit code is the job's.
    per_job: the status file is `status_of` the job, so that no other job writes it.
    box_argv: runs a black box beside the agent; none if empty.
    Raises UsageError if `agent_argv` or `status_file` is empty or text holds a NUL byte.
    """
    if not agent_argv or not status_file:
        raise UsageError("a holder needs an agent to run and a status file")
    if any("\0" in word for word in (*agent_argv, *box_argv, prologue, status_file)):
        raise UsageError(
            "the prologue or a path holds a NUL byte", hint="correct [cluster] prologue"
        )
    # sbatch refuses scripts with DOS line ends.
    lines = prologue.replace("\r\n", "\n").replace("\r", "\n").strip("\n")
    if re.search(r"^\s*(module|ml)\b", lines, re.MULTILINE):
        lines = _MODULE_INIT + lines
    return _BODY.format(
        status_file=shell_word(status_file),
        suffix=_JOB_NUMBER if per_job else "",
        cancelled=_CANCELLED,
        prologue=shlex.quote(lines),
        agent_argv=_shell_words(agent_argv),
        box=_box(box_argv, per_job) if box_argv else "",
    )


def _box(argv: Sequence[str], per_job: bool) -> str:
    """Return the lines that start the black box. per_job: it is the job's first node."""
    return _BOX.format(box_argv=_shell_words(argv), where="" if per_job else " step")


def _shell_words(argv: Sequence[str]) -> str:
    return " ".join(shell_word(word) for word in argv)


def plain_body(agent_argv: Sequence[str], prologue: str) -> str:
    """Return an sh body that becomes the agent, without a status file.

    For jobs whose files the laptop can't read, where the scheduler itself keeps their end."""
    # The prologue's output must not get into the agent's stream.
    before = f"{{ {prologue}\n}} >&2\n" if prologue else ""
    return f"{before}exec {shlex.join(agent_argv)}\n"


def shell_word(word: str) -> str:
    """Quote `word` for sh; a leading `~/` becomes the home directory on that host."""
    if word.startswith("~/"):
        return '"$HOME"/' + shlex.quote(word[2:]) if word != "~/" else '"$HOME"/'
    return shlex.quote(word)


def status_of(status_file: str, job_id: str) -> str:
    """Return the path of the status file that this job's script writes."""
    return f"{status_file}.{re.sub('[^0-9].*', '', job_id)}"


def cancelling(command: Command, status_file: str) -> Command:
    """Return `command`, which cancels a job, with the job's mark left before it.

    status_file: the file that this job's script writes (`status_of`)."""
    script = f'(umask 077; : >{shell_word(status_file + _CANCELLED)}) 2>/dev/null; exec "$@"'
    return replace(command, argv=("sh", "-c", script, "sh", *command.argv))


def read_status(status_file: str) -> Command:
    """Return a command that reads the status file, on any host that sees it."""
    return Command(("sh", "-c", f"echo {STATUS_MARK}; cat -- {shell_word(status_file)}"))


def after_mark(text: str) -> str:
    """Return what follows the mark in an answer; all of it if it has none."""
    return text.rpartition(f"{STATUS_MARK}\n")[2]


def parse_status(text: str) -> HolderStatus | None:
    """Parse the status file, or the answer of `read_status`; None if it is not complete yet."""
    match = _STATUS.fullmatch(after_mark(text))
    if not match:
        return None
    if match["code"] is not None:
        return HolderStatus(exit_code=int(match["code"]))
    return HolderStatus(node=match["node"], pid=int(match["pid"]))
