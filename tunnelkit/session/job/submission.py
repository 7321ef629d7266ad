"""One call of sbatch or qsub, made exactly once whatever becomes of the connection.

It runs on the login host, cut off from the connection that started it, and leaves its answer in
files: `~/.cache/tunnelkit/jobs/NAME.sub-NONCE/`. A slow one is waited for, a lost reply is read
from there. A session that was killed leaves it to the next one. Once it is not wanted any more
(`stop`), it cancels its own job as soon as that has an id.
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
State = Literal["answered", "runs", "gone", "none"]

#: The site's own filters may take minutes. After this the answer is not wanted any more.
LIMIT_S = 900.0
#: How long a look on the login host waits for the answer.
_FIRST_LOOK_S, _LOOK_S = 3, 10
_AGAIN_S = 1.0
#: What a request that was under way when its sender died may take to be seen by the scheduler.
_SETTLE_S = 15.0
#: How long those that were stopped are waited for.
_STOP_S = 8
_LOST = (ConnectionFailed, TimeoutExpired)

# $1 its directory, $2 the command that cancels, $3 umask, then the submission. A submission that
# was stopped before it began never begins; the answer's mark comes last.
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
case $id in *[!0-9A-Za-z._-]*) ;; [0-9]*) eval "$cancel \"\$id\"" >/dev/null 2>&1 ;; esac
"""
# $1 directory, $2 how many seconds. Tells the answer, or how it stands with it. `gone`: who
# would have written it is. On another login host that is not known.
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
# $1 directory, $2 seconds, $3 size of the job's script (stdin), $4 the command that cancels, $5
# _CALL, then the submission. Another one of the same name that is under way is waited for in place
# of it. Whether it was begun before, `mkdir` decides.
_BEGIN = (
    _WAIT
    + r"""
d=$1 s=$2 size=$3 mask=$(umask)
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
  cancel=$4 call=$5
  shift 5
  trap '' HUP
  $(command -v setsid) sh -c "$call" tk-submit "$d" "$cancel" "$mask" "$@" \
    </dev/null >/dev/null 2>&1 &
fi
answer "$d" "$s"
"""
)
# $1 directory, $2 seconds.
_ASK = (
    _WAIT
    + r"""answer "$1" "$2"
"""
)
# $1 what the directories of this name begin with, $2 the one that may not have begun yet, or
# nothing, $3 seconds. Tells which are still without an answer.
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
    """How it stands with a submission. base: which one was waited for."""

    state: State
    base: str
    answer: Completed


class Submission:
    """One submission of a job `name`; `answer` it, or `stop` it. jobs_dir: tk's on the cluster.
    cancel: what cancels a job, its id left out."""

    def __init__(
        self, run: Run, command: Command, cancel: tuple[str, ...], *, jobs_dir: str, name: str
    ) -> None:
        self._run = run
        self._command = command
        self._cancel = shlex.join(cancel)
        self._prefix = f"{jobs_dir}/{name}.sub-"
        self._base = f"{self._prefix}{secrets.token_hex(8)}"
        self._own = self._base

    async def answer(self, waiting: Callable[[float], None]) -> Completed:
        """What sbatch or qsub answered, as soon as it has. waiting: told now and then for how
        many seconds it has not. Raises SchedulerError if no answer will come; it is transient:
        the job may have been accepted all the same."""
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
                # It may have begun; then it is not begun once more.
                told = None
                await asyncio.sleep(_AGAIN_S)
                continue
            self._base = told.base
            if told.state == "answered":
                if told.base == self._own or told.answer.exit_code == 0:
                    return told.answer
                told = None  # a killed session's, that was refused: ours has not begun
            elif told.state == "gone":
                await asyncio.sleep(_SETTLE_S)
                raise _unanswered("it was ended there", transient=True)
        raise _unanswered(f"no answer within {LIMIT_S:.0f} s", transient=False)

    async def _begin(self) -> _Told:
        size = str(len(self._command.stdin))
        words = (self._own, str(_FIRST_LOOK_S), size, self._cancel, _CALL, *self._command.argv)
        done = await self._run(Command(("sh", "-c", _BEGIN, "sh", *words), self._command.stdin))
        told = self._read(done)
        if told.state == "none":
            raise SchedulerError("the submission was stopped", hint="once more: tk up")
        return told

    async def _ask(self) -> _Told:
        argv = ("sh", "-c", _ASK, "sh", self._base, str(_LOOK_S))
        return self._read(await self._run(Command(argv)))

    def _read(self, done: Completed) -> _Told:
        # A login banner may come before it.
        found = re.search(
            rb"^tk-submission (answered|runs|gone|none) (\S+)\n(?:(\d+|stopped)\n)?",
            done.stdout,
            re.MULTILINE,
        )
        if found is None:
            raise SchedulerError(
                "the login host could not keep the submission's answer",
                cause=done.error_text or f"exit status {done.exit_code}",
                hint="is the home there full or read-only? `tk doctor` tells",
            )
        state: State = found[1].decode()  # type: ignore[assignment]
        base = f"{self._prefix.rpartition('/')[0]}/{found[2].decode(errors='replace')}"
        if found[3] == b"stopped":
            state = "none"
        code = int(found[3]) if state == "answered" and found[3] else 0
        return _Told(state, base, Completed(code, done.stdout[found.end() :], done.stderr))

    @property
    def directory(self) -> str:
        """Where its files are."""
        return self._own


def _unanswered(cause: str, *, transient: bool) -> SchedulerError:
    return SchedulerError(
        "the login host did not tell how the submission ended",
        cause=cause,
        hint="look there whether sbatch or qsub works, and whether the job is in the queue",
        transient=transient,
    )


async def stop(run: Run, jobs_dir: str, name: str, own: Submission | None) -> bool:
    """No submission of that name is wanted any more; whether all of them are over. Each of the
    others cancels its own job once that has an id. own: the one that may not have begun."""
    words = (f"{jobs_dir}/{name}.sub-", own.directory if own is not None else "", str(_STOP_S))
    done = await run(Command(("sh", "-c", _STOP, "sh", *words)))
    return re.search(rb"^tk-open$", done.stdout, re.MULTILINE) is not None
