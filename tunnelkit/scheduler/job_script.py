"""The holder: the sh body of the job that keeps an allocation and runs the agent in it.

Scheduler-neutral and dash-compatible. Its status file is the proof of the job's
end where the scheduler forgets (Slurm drops records after MinJobAge, and its
accounting may be off).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from tunnelkit.errors import UsageError
from tunnelkit.scheduler.base import Command

# Shells start background commands with SIGINT and SIGQUIT ignored, a debuggee would inherit
# that and be deaf to Ctrl-C; newer `env` undoes it.
#
# The prologue runs in a shell of its own (bash if there is one, as people write `source` and
# `module`), which then becomes the agent: a `set -e`, `trap` or `exit` in it can't hurt the
# holder, and the agent's pid is the one we started. USR1 is caught while the prologue runs,
# as its default would kill it; not ignored, since that would be inherited.
#
# The status file is private, but what the person's own processes write keeps their umask.
#
# A forked child has the holder's own traps for a moment, and dash throws away what comes then.
# A TERM in that moment would never reach the agent: so the holder leaves a mark before it
# passes one on, and the child looks for it once its traps are its own.
#
# `wait` returns when a trap has run, too, with the signal's code. Then the agent is still there
# (a zombie counts), or the shell has reaped it in that very moment, as where the scheduler sends
# TERM to all processes of the job: only another wait has its code. After a wait that had it
# already that one says 127, and bash -1 where it has lost the code in that moment; then the
# signal's is told.
_BODY = """\
tk_umask=$(umask)
umask 077
tk_status={status_file}{suffix}
tk_mark=$tk_status.$$.end
mkdir -p -- "$(dirname -- "$tk_status")"
tk_node=${{SLURMD_NODENAME:-$(uname -n)}}
tk_tell() {{ printf '%s\\n' "$1" >"$tk_status.$$" && mv -f -- "$tk_status.$$" "$tk_status"; }}
tk_leave() {{ tk_tell "ended $1"; rm -f -- "$tk_mark"; exit "$1"; }}
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
while :; do
  wait "$tk_agent"
  tk_code=$?
  kill -0 "$tk_agent" 2>/dev/null || break
done
wait "$tk_agent" 2>/dev/null
tk_again=$?
case $tk_again in -1 | 127) ;; *) tk_code=$tk_again ;; esac
tk_leave "$tk_code"
"""

# `module` is a function of login shells, and a job's shell is none.
_MODULE_INIT = """\
if ! command -v module >/dev/null 2>&1; then
  for tk_init in /etc/profile.d/lmod.sh /etc/profile.d/z00_lmod.sh /etc/profile.d/modules.sh \\
    /usr/share/lmod/lmod/init/profile /usr/share/modules/init/sh; do
    if [ -r "$tk_init" ]; then . "$tk_init"; break; fi
  done
fi
"""

#: Of the scheduler that runs it: `.4711`, whatever follows the number in its id.
_JOB_NUMBER = """\
.$(printf '%s' "${SLURM_JOB_ID:-$PBS_JOBID}" | sed 's/[^0-9].*//')"""

_STATUS = re.compile(r"(?:running (?P<node>\S+) (?P<pid>\d+)|ended (?P<code>\d+))\n?")


@dataclass(frozen=True, slots=True)
class HolderStatus:
    """What a status file says: the agent runs on `node` as `pid`, or ended with `exit_code`."""

    node: str | None = None
    pid: int | None = None
    exit_code: int | None = None

    @property
    def ended(self) -> bool:
        return self.exit_code is not None


def body(
    *, agent_argv: Sequence[str], prologue: str, status_file: str, per_job: bool = False
) -> str:
    """The job's sh body, without shebang.

    `prologue`: sh lines that set up the agent's environment; if one of them exits, the job
    ends with that code. Words of `agent_argv` and `status_file` may start with `~/`. USR1
    (the time limit is near) and TERM reach the agent, whose exit code is the job's.
    per_job: the status file is `status_of` the job, so that no other one writes it. Raises
    UsageError if there is no agent to run or a word holds a NUL.
    """
    if not agent_argv or not status_file:
        raise UsageError("a holder needs an agent to run and a status file")
    if any("\0" in word for word in (*agent_argv, prologue, status_file)):
        raise UsageError("the prologue or a path holds a NUL byte", hint="mend [cluster] prologue")
    # sbatch refuses scripts with DOS line ends.
    lines = prologue.replace("\r\n", "\n").replace("\r", "\n").strip("\n")
    if re.search(r"^\s*(module|ml)\b", lines, re.MULTILINE):
        lines = _MODULE_INIT + lines
    return _BODY.format(
        status_file=shell_word(status_file),
        suffix=_JOB_NUMBER if per_job else "",
        prologue=shlex.quote(lines),
        agent_argv=" ".join(shell_word(word) for word in agent_argv),
    )


def shell_word(word: str) -> str:
    """`word` quoted for sh, with a leading `~/` as the home directory there."""
    if word.startswith("~/"):
        return '"$HOME"/' + shlex.quote(word[2:]) if word != "~/" else '"$HOME"/'
    return shlex.quote(word)


def status_of(status_file: str, job_id: str) -> str:
    """Where the body of that job tells."""
    return f"{status_file}.{re.sub('[^0-9].*', '', job_id)}"


def read_status(status_file: str) -> Command:
    """Read the status file, on any host that sees it."""
    return Command(("sh", "-c", f"cat -- {shell_word(status_file)}"))


def parse_status(text: str) -> HolderStatus | None:
    """The status file's content; None if it says nothing (yet)."""
    match = _STATUS.fullmatch(text)
    if not match:
        return None
    if match["code"] is not None:
        return HolderStatus(exit_code=int(match["code"]))
    return HolderStatus(node=match["node"], pid=int(match["pid"]))
