"""The kept jobs: listed, kept longer, let go. Their state is in files beside tk's own."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import shlex
import time
from collections.abc import Mapping

from tunnelkit.errors import AllocationError, TimeoutExpired, UsageError
from tunnelkit.scheduler.base import Command
from tunnelkit.scheduler.batch_scripts import OwnJob
from tunnelkit.session.runtime.control_answers import KeptJob, StandingProgram
from tunnelkit.session.submit.login import Login, Places, prepare

#: Limit for the keeper's answer to a request. It looks every 5 s if no signal reaches it.
_ANSWER_S, _LOOK_S = 30.0, 0.3
_MOST_JOBS, _MOST_STANDING = 200, 8
#: The keeper and its programs end at most a minute after the last moment that the state names; the
#: rest is for clocks that differ.
_OVER_S = 300.0

# $1 the directory of the kept jobs' files.
_READ = r"""
date '+tk-now %s'
for file in "$1"/[0-9]*.json; do
  [ -f "$file" ] || continue
  printf 'tk-kept %s ' "${file##*/}"
  head -c 8192 "$file" | tr -d '\n\r'
  echo
done
"""
# $1 the directory, then names of jobs that are over.
_SWEEP = r"""
cd -- "$1" || exit 1
shift
for job; do rm -f "$job.json" "$job.wish" "$job.new"; rm -rf "$job.at"; done
find . -maxdepth 1 '(' -name 'array-*' -o -name '[0-9]*.json' ')' -mtime +60 -exec rm -f {} +
find . -maxdepth 1 -name '[0-9]*.at' -mtime +60 -exec rm -rf {} +
"""
# $1 the file; stdin: the request.
_WISH = 'umask 077; cat >"$1.$$" && mv -f "$1.$$" "$1"'


async def kept_jobs(login: Login) -> list[KeptJob]:
    """Return the jobs that are kept now. Raises SchedulerError, ConnectionFailed."""
    return (await look(login))[1]


async def look(login: Login) -> tuple[Places, list[KeptJob], list[str]]:
    """Return tk's places, the jobs that are kept now, and the ids of all that run.

    Files go only once nobody can need them any more: several clusters may share a directory, and
    a scheduler's list may lack a job that runs."""
    places = await prepare(login)
    files, listed = await asyncio.gather(
        login.run(Command(("sh", "-c", _READ, "sh", places.kept))),
        login.run(Command(tuple(login.scripts.running()))),
    )
    running = {job.job_id: job for job in login.scripts.parse_running(listed)}
    found = dict(_states(files.text))
    over = _over(found, files.text)
    if over:
        await login.run(Command(("sh", "-c", _SWEEP, "sh", places.kept, *over)))
    kept = {
        job: _with_array(state, running[job])
        for job, state in found.items()
        if job in running and job not in over and _is_state_of(state, running[job])
    }
    others = [job for name, job in running.items() if _is_kept(job) and name not in kept]
    return places, [*kept.values(), *map(_by_comment, others)], sorted(running)


def _over(states: Mapping[str, KeptJob], text: str) -> list[str]:
    """Return the jobs whose last moment is past by the login host's clock, in _READ's answer."""
    clock = re.search(r"^tk-now ([0-9]{1,12})$", text, re.M)
    if clock is None:
        return []
    ends = {job: one["until_s"] or one["limit_s"] for job, one in states.items()}
    return [job for job, end in ends.items() if end and end + _OVER_S < float(clock[1])]


def _is_state_of(state: KeptJob, job: OwnJob) -> bool:
    """Return False for the state of another cluster's job with the same number."""
    return not (state["cluster"] and job.cluster) or state["cluster"] == job.cluster


def _is_kept(job: OwnJob) -> bool:
    return job.comment.startswith("tk: kept")


def _by_comment(job: OwnJob) -> KeptJob:
    """Return a job whose files can't be seen from the login host."""
    return {**_with_array(_read_state(job.job_id, {}), job), "comment": job.comment}


def _with_array(state: KeptJob, job: OwnJob) -> KeptJob:
    """Return it with the element's name as the scheduler lists it, where it does."""
    return {**state, "array": job.array or state["array"]}


def _states(text: str) -> list[tuple[str, KeptJob]]:
    rows = re.findall(r"^tk-kept ([0-9]+(?:-[0-9]+)?)\.json (.*)$", text, re.M)[:_MOST_JOBS]
    found = []
    for job, line in rows:
        try:
            data = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(data, dict):
            found.append((job, _read_state(job, data)))
    return found


def _read_state(job: str, data: Mapping[str, object]) -> KeptJob:
    """Return a state with what has the right type, and None for what has not."""

    def number(name: str) -> float | None:
        return _number(data, name)

    def text(name: str) -> str | None:
        return _text(data, name)

    return {
        "job": job,
        "array": text("array"),
        "cluster": text("cluster"),
        "name": text("name"),
        "node": text("node"),
        "code": number("code"),
        "signal": number("signal"),
        "since_s": number("since_s"),
        "until_s": number("until_s"),
        "limit_s": number("limit_s"),
        "idle_s": number("idle_s"),
        "gpus": number("gpus"),
        "cpus": number("cpus"),
        "attached": data.get("attached") is True,
        "answered": text("answered"),
        "standing": _standing(data.get("standing")),
        "comment": None,
    }


def _standing(data: object) -> list[StandingProgram]:
    found = data[:_MOST_STANDING] if isinstance(data, list) else []
    return [
        {
            "node": _text(one, "node"),
            "pid": _number(one, "pid"),
            "rank": _number(one, "rank"),
            "error": _text(one, "error"),
            "where": _text(one, "where"),
        }
        for one in found
        if isinstance(one, dict)
    ]


def _number(data: Mapping[str, object], name: str) -> float | None:
    value = data.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 1e12 else None


def _text(data: Mapping[str, object], name: str) -> str | None:
    value = data.get(name)
    return value[:200] if isinstance(value, str) else None


async def change(login: Login, job: str | None, for_s: float | None) -> KeptJob:
    """Keep a job for that long from now, or let it go (None); return its state then.

    job: None: the only one. Raises UsageError, AllocationError, TimeoutExpired."""
    places, jobs, _ = await look(login)
    one = _chosen(jobs, job)
    number = secrets.token_hex(8)
    asked = {"release": True} if for_s is None else {"for_s": for_s}
    wish = {"number": number, **asked}
    path = f"{places.kept}/{one['job']}.wish"
    done = await login.run(Command(("sh", "-c", _WISH, "sh", path), json.dumps(wish).encode()))
    if done.exit_code == 0 and one["comment"] is None:
        await login.run(Command(tuple(login.scripts.wake(_addressed(one)))))
    elif for_s is None:
        await login.run(Command(tuple(login.scripts.release(_addressed(one)))))
    return await _answered(login, one, number, for_s)


async def _answered(login: Login, one: KeptJob, number: str, for_s: float | None) -> KeptJob:
    """Wait until the keeper has done what was asked."""
    ends = time.monotonic() + _ANSWER_S
    while True:
        now = next((it for it in await kept_jobs(login) if it["job"] == one["job"]), None)
        if now is None and for_s is None:
            return one
        if now is None:
            raise AllocationError(
                f"job {one['job']} was let go meanwhile", hint="tk keep --list shows what is kept"
            )
        if for_s is not None and now["answered"] == number:
            return now
        if time.monotonic() > ends:
            raise TimeoutExpired(
                f"job {one['job']} did not answer within {_ANSWER_S:.0f} s",
                hint=f"on the login host this ends it at once: {_cancel(login, _addressed(one))}",
            )
        await asyncio.sleep(_LOOK_S)


def _cancel(login: Login, job: str) -> str:
    number, mark, index = job.partition("-")
    return shlex.join(login.scheduler.cancel(f"{number}[{index}]" if mark else number).argv)


def _addressed(one: KeptJob) -> str:
    """Return the id for commands. By the number of an array's last element, Slurm takes all."""
    array = one["array"] or ""
    return array if re.fullmatch(r"[0-9]+_[0-9]+", array) else one["job"]


def is_named(one: KeptJob, job: str) -> bool:
    """Return True for a job by its number, an element's name, or PBS's id with the server."""
    names = (one["job"], one["array"], (one["array"] or "").partition(".")[0])
    return job in names or (one["array"] is None and job.partition(".")[0] == one["job"])


def _chosen(jobs: list[KeptJob], job: str | None) -> KeptJob:
    if job is not None:
        found = [one for one in jobs if is_named(one, job)]
        if not found:
            raise UsageError(f"job {job} is not kept", hint="tk keep --list shows what is kept")
        return found[0]
    if not jobs:
        raise UsageError("no job of yours is kept", hint="tk submit --keep-on-failure SCRIPT")
    if len(jobs) > 1:
        names = ", ".join(one["job"] for one in jobs)
        raise UsageError(f"{len(jobs)} jobs are kept: {names}", hint="name one: tk keep JOB ...")
    return jobs[0]
