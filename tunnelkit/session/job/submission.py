"""One call of sbatch or qsub, made exactly once even if the connection is lost.

It runs on the login host, detached from the connection that started it, and writes its answer to
files in `jobs/NAME.sub-NONCE/` of tk's directory (default `~/.cache/tunnelkit`). The session waits
for a slow answer, and reads a lost reply from there. After a killed session the next one waits for
it. After `stop` it cancels its own job as soon as the job has an id.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import shlex
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from tunnelkit.errors import ConnectionFailed, SchedulerError, TimeoutExpired
from tunnelkit.model import Completed
from tunnelkit.scheduler.base import Command

Run = Callable[[Command], Awaitable[Completed]]
#: Runs a command by something that is ready for it; None if it is not.
RunReady = Callable[[Command], Awaitable[Completed | None]]
State = Literal["answered", "runs", "gone", "none"]
_STATES: dict[bytes, State] = {
    b"answered": "answered",
    b"runs": "runs",
    b"gone": "gone",
    b"none": "none",
}

#: Limit for the answer. A site's submission filters may take minutes.
LIMIT_S = 900.0
#: Seconds for which one command on the login host waits for the answer.
_FIRST_LOOK_S, _LOOK_S = 3, 10
_AGAIN_S = 1.0
#: Pause until the scheduler lists the job of a request whose sender died meanwhile.
_SETTLE_S = 15.0
#: Seconds to wait for stopped submissions.
_STOP_S = 8
_LOST = (ConnectionFailed, TimeoutExpired)

# $1 its directory, $2 the cancel command, $3 umask, then the submission's argv. A submission that
# was stopped before it began never begins. The file `code`, which marks the answer, comes last.
_CALL = r"""
d=$1 cancel=$2 mask=$3
shift 3
printf '%s %s\n' "$(uname -n)" "$$" >"$d/pid"
code=stopped
if [ ! -e "$d/stop" ]; then
  (umask "$mask"; exec "$@") <"$d/script" >"$d/out" 2>"$d/err"
  code=$?
fi
printf '%s\n' "$code" >"$d/code.new"
mv -f "$d/code.new" "$d/code"
[ -e "$d/stop" ] && [ "$code" = 0 ] || exit 0
id=$(tail -n 1 "$d/out")
id=${id%%;*}
case $id in *[!][0-9A-Za-z._-]*) ;; [0-9]*) eval "$cancel \"\$id\"" >/dev/null 2>&1 ;; esac
"""
# $1 directory, $2 seconds to wait. Prints the state, and the answer if there is one. `gone`: the
# process that would write it no longer exists. From another login host that is not known.
_WAIT = r"""
state() {
  if [ -e "$1/code" ]; then state=answered
  elif [ ! -d "$1/began" ]; then state=none
  elif [ ! -s "$1/pid" ]; then
    state=runs
    [ -z "$(find "$1/began" -prune -mmin +2)" ] || state=gone
  elif ! read -r host pid <"$1/pid"; then state=runs
  elif [ "$host" != "$(uname -n)" ] || kill -0 "$pid" 2>/dev/null; then state=runs
  elif [ -e "$1/code" ]; then state=answered
  else state=gone
  fi
}
answer() {
  d=$1 left=$(($2 * 10))
  while state "$d"; [ $state = runs ] && [ $left -gt 0 ]; do
    if [ $left -gt $(($2 * 10 - 5)) ]; then
      for _ in 1 2 3 4 5; do [ -e "$d/code" ] || sleep 0.02; done
    else
      sleep 0.1
    fi
    left=$((left - 1))
  done
  printf 'tk-submission %s %s\n' $state "${d##*/}"
  [ $state = answered ] || exit 0
  cat "$d/code" "$d/out"
  cat "$d/err" >&2
}
"""
# $1 directory, $2 a command that lists jobs, $3 text in the list while the scheduler has not looked
# at the job, or "". Prints the list after the answer to a submission that was accepted: on a free
# node the job runs within tenths of a second. A scheduler that is slow now is not waited for.
_LOOK = r"""
look() {
  read -r code <"$1/code" && [ "$code" = 0 ] || return 0
  rm -f "$1/look" "$1/late"
  (
    for _ in 1 2 3 4 5; do
      [ ! -e "$1/late" ] || exit
      eval "$2" >"$1/look.new" || exit
      [ -n "$3" ] && grep -qF -e "$3" "$1/look.new" || break
      sleep 0.1
    done
    mv -f "$1/look.new" "$1/look"
  ) </dev/null >/dev/null 2>&1 &
  left=50
  while [ ! -e "$1/look" ] && [ $left -gt 0 ] && kill -0 $! 2>/dev/null; do
    sleep 0.02
    left=$((left - 1))
  done
  touch "$1/late" 2>/dev/null
  [ ! -e "$1/look" ] || { printf '\ntk-look %s\n' "${1##*/}"; cat "$1/look"; }
}
"""
# $1 directory, $2 seconds, $3 size of the job's script (stdin), $4 the cancel command, $5 and $6 as
# $2 and $3 of `look`, $7 _CALL, then the submission's argv. If another submission of the same name
# is under way, it waits for that one instead. `mkdir` of `began` succeeds only once, so the
# submission begins only once.
_BEGIN = (
    _WAIT
    + _LOOK
    + r"""
d=$1 s=$2 size=$3 jobs=$5 undecided=$6 mask=$(umask)
umask 077
mkdir -p "$d" && cat >"$d/script.$$" && [ "$(wc -c <"$d/script.$$")" -eq "$size" ] || exit 74
for other in "${d%-*}"-*; do
  [ "$other" != "$d" ] || continue
  state "$other"
  if [ $state = runs ] && [ ! -e "$other/stop" ] && [ -z "$(find "$other/began" -mmin +15)" ]; then
    rm -rf "$d"
    answer "$other" "$s"
    exit
  fi
  [ $state = runs ] && [ -z "$(find "$other" -prune -mtime +1)" ] || rm -rf "$other"
done
find "${d%/*}" -maxdepth 1 -name "$(basename "${d%.sub-*}").status.*" -mtime +60 -exec rm -f {} +
mv -f "$d/script.$$" "$d/script"
if [ ! -e "$d/stop" ] && mkdir "$d/began" 2>/dev/null; then
  cancel=$4 call=$7
  shift 7
  trap '' HUP
  $(command -v setsid) sh -c "$call" tk-submit "$d" "$cancel" "$mask" "$@" \
    </dev/null >/dev/null 2>&1 &
fi
answer "$d" "$s"
[ -z "$jobs" ] || look "$d" "$jobs" "$undecided"
"""
)
# $1 directory, $2 seconds.
_ASK = (
    _WAIT
    + r"""answer "$1" "$2"
"""
)
# $1 common prefix of the directories of this name, $2 the directory of a submission that may not
# have begun yet, or "", $3 seconds. Prints those that are still without an answer.
_STOP = (
    _WAIT
    + r"""
umask 077
[ -z "$2" ] || mkdir -p "$2"
for d in "$1"*; do [ ! -d "$d" ] || [ -e "$d/code" ] || : >"$d/stop"; done
left=$(($3 * 10))
while :; do
  open=
  for d in "$1"*; do
    [ ! -d "$d" ] || { state "$d"; [ $state != runs ] || open="$open ${d##*/}"; }
  done
  [ -n "$open" ] && [ $left -gt 0 ] || break
  sleep 0.1
  left=$((left - 1))
done
printf 'tk-open%s\n' "$open"
"""
)


@dataclass(frozen=True)
class _Told:
    """The state of a submission. base: the directory of the one that was waited for."""

    state: State
    base: str
    answer: Completed


class Submission:
    """One submission of the job `name`. Call `answer`, or the function `stop`.

    cancel: argv of the scheduler's cancel command, without the job id.
    look: argv that lists the user's jobs of that name, run once the job has an id; () if nobody
    asks. undecided: see `Capabilities`.
    ready: runs the first command, if it can.
    jobs_dir: tk's directory for jobs on the cluster."""

    def __init__(
        self,
        run: Run,
        command: Command,
        cancel: tuple[str, ...],
        *,
        ready: RunReady | None = None,
        look: tuple[str, ...] = (),
        undecided: str = "",
        jobs_dir: str,
        name: str,
    ) -> None:
        #: The answer to `look` after an accepted submission; None if it did not come.
        self.looked: Completed | None = None
        self._run = run
        self._ready = ready
        self._command = command
        self._cancel = shlex.join(cancel)
        self._look = (shlex.join(look), undecided)
        self._prefix = f"{jobs_dir}/{name}.sub-"
        self._base = f"{self._prefix}{secrets.token_hex(8)}"
        self._own = self._base

    async def answer(self, waiting: Callable[[float], None]) -> Completed:
        """Submit the job, wait, and return the answer of sbatch or qsub.

        waiting: called now and then with the seconds without an answer.
        Raises SchedulerError if no answer will come. If the submission was killed, the error is
        transient: the scheduler may have accepted the job."""
        begin = time.monotonic()
        told: _Told | None = None
        while (waited_s := time.monotonic() - begin) < LIMIT_S:
            if waited_s > _FIRST_LOOK_S - 1:
                waiting(waited_s)
            try:
                told = await (self._begin() if told is None else self._ask())
            except _LOST as error:
                if not error.transient:
                    raise
                # The submission may have begun; `_BEGIN` does not begin it twice.
                told = None
                await asyncio.sleep(_AGAIN_S)
                continue
            self._base = told.base
            if told.state == "answered":
                if told.base == self._own or told.answer.exit_code == 0:
                    return told.answer
                told = None  # a killed session's submission was refused; this one has not begun
            elif told.state == "gone":
                await asyncio.sleep(_SETTLE_S)
                raise _unanswered("it was ended there", transient=True)
        raise _unanswered(f"no answer within {LIMIT_S:.0f} s", transient=False)

    async def _begin(self) -> _Told:
        size = str(len(self._command.stdin))
        words = (self._own, str(_FIRST_LOOK_S), size, self._cancel, *self._look, _CALL)
        argv = ("sh", "-c", _BEGIN, "sh", *words, *self._command.argv)
        command = Command(argv, self._command.stdin)
        ready, self._ready = self._ready, None
        done = None if ready is None else await ready(command)
        told = self._read(await self._run(command) if done is None else done)
        if told.state == "none":
            raise SchedulerError("the submission was stopped", hint="once more: tk up")
        return told

    async def _ask(self) -> _Told:
        argv = ("sh", "-c", _ASK, "sh", self._base, str(_LOOK_S))
        return self._read(await self._run(Command(argv)))

    def _read(self, done: Completed) -> _Told:
        # A login banner may come before the answer.
        found = re.search(
            rb"^tk-submission (answered|runs|gone|none) (\S+)\n(?:(\d+|stopped)\n)?",
            done.stdout,
            re.MULTILINE,
        )
        if found is None:
            raise SchedulerError(
                "the login host could not keep the submission's answer",
                cause=done.error_text or f"exit status {done.exit_code}",
                hint="is the home there full or read-only? `tk doctor` shows it",
            )
        state = _STATES[found[1]]
        base = f"{self._prefix.rpartition('/')[0]}/{found[2].decode(errors='replace')}"
        if found[3] == b"stopped":
            state = "none"
        code = int(found[3]) if state == "answered" and found[3] else 0
        said, mark, listed = done.stdout[found.end() :].partition(b"\ntk-look %s\n" % found[2])
        self.looked = Completed(0, listed, b"") if mark else None
        return _Told(state, base, Completed(code, said, done.stderr))

    @property
    def directory(self) -> str:
        """The directory of the submission's files."""
        return self._own


def _unanswered(cause: str, *, transient: bool) -> SchedulerError:
    return SchedulerError(
        "the login host did not say how the submission ended",
        cause=cause,
        hint="look there whether sbatch or qsub works, and whether the job is in the queue",
        transient=transient,
    )


async def stop(run: Run, jobs_dir: str, name: str, own: Submission | None) -> bool:
    """Stop all submissions of that name; return True if all of them are over.

    Each of the others cancels its own job once the job has an id.
    own: the submission that may not have begun, or None."""
    words = (f"{jobs_dir}/{name}.sub-", own.directory if own is not None else "", str(_STOP_S))
    done = await run(Command(("sh", "-c", _STOP, "sh", *words)))
    return re.search(rb"^tk-open$", done.stdout, re.MULTILINE) is not None
