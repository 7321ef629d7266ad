"""The end of a job of PBS, as PBS itself has it on record: exit code, comment, line on stderr.

An exit code below 0 is PBS's own. OpenPBS's (`src/include/job.h`) and Torque's differ; a job of
Torque ends in state C.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tunnelkit.diagnosis.evidence.end import EndView
from tunnelkit.diagnosis.evidence.job import JobView
from tunnelkit.diagnosis.verdict import Certainty, Evidence, NextStep, Verdict

#: job_state of a job that has ended, of PBS and Torque; R: it is being deleted.
PBS_ENDS = frozenset("FXECRM")
_MOVED = re.compile(r'.*moved to "?(?P<where>[^"]+)"?', re.DOTALL)
_CODE_SOURCE = "qstat -x -f: Exit_status"
_COMMENT_SOURCE = "qstat -x -f: comment"
_DELETED = re.compile(r".* and terminated(?: by (?P<who>\S+))?", re.DOTALL)
#: message_job() of pbs_mom: `=>> PBS: job killed: walltime 5 exceeded limit 3`
_KILLED = re.compile(
    r"^=>> PBS: job killed: (?P<what>[a-z]+) (?P<used>[0-9.]+\S*) exceeded limit "
    r"(?P<limit>[0-9.]+\S*)",
    re.MULTILINE,
)
#: The cgroup hook's line says only that the limit was reached; the kernel's after it, of a kill.
#: The hook writes it when the job has ended, so it does not say when the kernel killed.
_CGROUP = re.compile(
    r"Cgroup (?:mem|memsw) limit exceeded:.*?(?P<kill>(?:Memory cgroup out of memory|oom-kill:|"
    r"Killed? process |Task in /\S{1,400} killed as a result of limit )[^\n]*)",
    re.IGNORECASE,
)
#: KILL and TERM, as PBS and as a shell write them.
_KILLED_CODES = frozenset({265, 137})
_SIGNALLED = frozenset({*_KILLED_CODES, 271, 143})
#: A line so far above the end of the log is of something that the script outlived.
_MOST_AFTER = 20


@dataclass(frozen=True, slots=True)
class _Ending:
    code: str
    sentence: str
    step: str
    command: str = ""


_MEMORY = _Ending(
    "oom-limit", "was ended by PBS: it used more memory than it had asked for",
    "ask for more memory", "tk up --mem SIZE",
)  # fmt: skip
_VMEM = _Ending(
    "oom-limit", "was ended by PBS: it used more virtual memory than it had asked for",
    "ask for more with -l vmem=, or leave vmem out: CUDA reserves far more than it uses",
)  # fmt: skip
_TIME = _Ending(
    "timeout", "reached its time limit", "ask for more time, if it worked to the end",
    "tk up --time TIME",
)  # fmt: skip
_CPUS = _Ending(
    "cpus-exceeded", "was ended by PBS: it used more CPUs than it had asked for",
    "ask for more CPUs, or start fewer threads (OMP_NUM_THREADS)", "tk up --cpus N",
)  # fmt: skip
_CPUT = _Ending(
    "cput-exceeded", "was ended by PBS: it used up the CPU time that it had asked for",
    "ask for more with -l cput=, or leave cput out",
)  # fmt: skip
_REFUSED = _Ending(
    "launch-refused", "never ran: its node could not start it",
    "submit it again; if it stays, show the exit code to the administrator",
)  # fmt: skip
_USER = _Ending(
    "launch-refused", "never ran: its node does not know you as a user",
    "ask the administrator; until then leave that node out",
)  # fmt: skip
_LOST = _Ending(
    "node-failed", "ended because PBS lost its first node",
    "submit it again, and write checkpoints; with -r y PBS does that by itself",
)  # fmt: skip
_RESTARTED = _Ending(
    "node-failed", "ended because PBS's daemon on its node was restarted", "submit it again",
)  # fmt: skip
_PUT_BACK = _Ending(
    "put-back", "was to go back into the queue, but may not be started twice (Rerunable = False)",
    "submit it again; with -r y PBS does that by itself",
)  # fmt: skip
_HOOK = _Ending(
    "hook-ended", "was ended by a rule of the site (a PBS hook)", "ask the administrator which",
)  # fmt: skip
_PASSWORD = _Ending(
    "launch-refused", "never ran: PBS has a wrong password of you",
    "give PBS the new password", "pbs_password",
)  # fmt: skip
_OUTPUT = _Ending(
    "launch-refused", "never ran: its output files could not be made on its node",
    "look at -o and -e: their directory must be there",
)  # fmt: skip

_OPENPBS: Mapping[int, _Ending] = {
    -1: _REFUSED, -2: _REFUSED, -3: _REFUSED, -4: _RESTARTED, -5: _RESTARTED, -6: _RESTARTED,
    -7: _REFUSED, -10: _USER, -11: _PUT_BACK, -13: _PASSWORD, -14: _PUT_BACK, -16: _PUT_BACK,
    -17: _HOOK, -18: _PUT_BACK, -19: _HOOK, -20: _LOST, -21: _REFUSED, -22: _PUT_BACK,
    -23: _REFUSED, -24: _CPUS, -25: _CPUS, -26: _VMEM, -27: _MEMORY, -28: _CPUT, -29: _TIME,
    -30: _REFUSED,
}  # fmt: skip
_TORQUE: Mapping[int, _Ending] = {
    -1: _REFUSED, -2: _REFUSED, -3: _REFUSED, -4: _RESTARTED, -5: _RESTARTED, -6: _RESTARTED,
    -7: _REFUSED, -8: _REFUSED, -9: _OUTPUT, -10: _MEMORY, -11: _TIME, -12: _CPUT, -13: _REFUSED,
}  # fmt: skip
#: What pbs_mom's line names -> the ending. Others (mppe, spool usage): none.
_BY_LINE: Mapping[str, _Ending] = {
    "walltime": _TIME, "mem": _MEMORY, "vmem": _VMEM, "cput": _CPUT, "ncpus": _CPUS,
}  # fmt: skip


def pbs_record(job: JobView, end: EndView) -> Verdict | None:
    """Return how the job ended if PBS itself ended it or a user deleted it, else None."""
    line = _killed_line(job, end)
    table = _TORQUE if job.native_state == "C" else _OPENPBS
    if job.exit_code is not None and job.exit_code < 0:
        known = table.get(job.exit_code)
        return _by_pbs(job, end, known, line) if known else _unknown_code(job)
    # qdel ends a job by TERM too, and the comment is the record of that.
    if (deleted := _deleted(job)) is not None:
        return deleted
    if (killed := _cgroup_kill(job, end)) is not None:
        return killed
    if line is not None and job.exit_code and (by := _BY_LINE.get(line["what"])) is not None:
        return _by_pbs(job, end, by, line)
    return None


def _by_pbs(job: JobView, end: EndView, by: _Ending, line: re.Match[str] | None) -> Verdict:
    """Return the verdict; the line on stderr may add how much was used."""
    reported = line if line is not None and _BY_LINE.get(line["what"]) == by else None
    record = job.exit_code is not None and job.exit_code < 0
    because = [_record(job)]
    sentence = by.sentence
    if reported is not None:
        sentence += f" ({reported['what']} {reported['used']}, limit {reported['limit']})"
        because.append(Evidence(reported[0], "the job's log", "log"))
    elif by is _TIME and job.time_limit_s:
        sentence += f" of {_clock(job.time_limit_s)}"
    if by.code == "oom-limit":
        because += _memory(job, end)
    return Verdict(
        by.code,
        sentence,
        Certainty.PROVEN if record else Certainty.LIKELY,
        tuple(because),
        next_steps=(NextStep(by.step, by.command),),
    )


def _deleted(job: JobView) -> Verdict | None:
    match = _DELETED.fullmatch(job.reason or "")
    if not match:
        return None
    who = (match["who"] or "").partition("@")[0]
    by = " by you" if who and who == job.user else f" by {match['who']}" if who else ""
    before = ", before it ran" if job.start_s is None else ""
    return Verdict(
        "cancelled",
        f"was deleted{by}{before}",
        Certainty.PROVEN,
        (Evidence((job.reason or "")[:400], _COMMENT_SOURCE),),
        next_steps=(NextStep("nothing, if you did it; else ask the one who did"),),
    )


def pbs_moved(job: JobView) -> Verdict | None:
    """Return the verdict on a job that goes on at another server, else None."""
    if job.native_state != "M":
        return None
    match = _MOVED.fullmatch(job.reason or "")
    where = match["where"][:200] if match else ""
    server = where.partition("@")[2]
    return Verdict(
        "moved",
        f"was moved to {where or 'another PBS server'}, and goes on there",
        Certainty.PROVEN,
        (Evidence(f"job_state = M, {job.reason or 'no comment'}"[:400], _COMMENT_SOURCE),),
        next_steps=(NextStep("ask there", f"qstat -f {job.job_id}@{server}" if server else ""),),
    )


def pbs_ending(job: JobView) -> Verdict | None:
    """Return the verdict on a job whose processes are being ended, else None."""
    if job.native_state not in "ER" or job.exit_code is not None:
        return None
    return Verdict(
        "exit-unknown",
        "is ending: PBS has no exit code of it yet",
        Certainty.UNKNOWN,
        (Evidence(f"job_state = {job.native_state}", "qstat -x -f: job_state"),),
        next_steps=(NextStep("ask again in a minute", f"tk why {job.job_id}"),),
    )


def _cgroup_kill(job: JobView, end: EndView) -> Verdict | None:
    """Return the verdict if the cgroup hook wrote the kernel's line about a kill."""
    found = [(one, log.text) for log in end.logs for one in _CGROUP.finditer(log.text)]
    # A helper may have been killed, and the script have gone on.
    if not found or not job.exit_code:
        return None
    match, text = found[-1]
    near = _lines_after(text, match) <= _MOST_AFTER
    if not near and job.exit_code not in _SIGNALLED:
        return None
    sure = near and job.exit_code in _KILLED_CODES
    because = (_record(job), Evidence(match["kill"][:300], "the job's log", "log"))
    return Verdict(
        "oom-limit",
        "lost a process: the kernel killed it for memory, at the job's limit",
        Certainty.PROVEN if sure else Certainty.LIKELY,
        (*because, *_memory(job, end)),
        next_steps=(NextStep("ask for more memory", "tk up --mem SIZE"),),
    )


def _unknown_code(job: JobView) -> Verdict:
    return Verdict(
        "exit-unknown",
        f"was ended by PBS, with its own code {job.exit_code}, which tk does not know",
        Certainty.UNKNOWN,
        (_record(job),),
        next_steps=(NextStep("show the code to the administrator"),),
    )


def _killed_line(job: JobView, end: EndView) -> re.Match[str] | None:
    """Return the last line by which pbs_mom says that it ended the job.

    An appended log may hold an earlier job's line: what follows is of a job that ended itself."""
    found = [(match, log.text) for log in end.logs for match in _KILLED.finditer(log.text)]
    if not found:
        return None
    match, text = found[-1]
    by_pbs = job.exit_code is not None and (job.exit_code < 0 or job.exit_code in _SIGNALLED)
    return match if by_pbs or not _lines_after(text, match) else None


def _lines_after(text: str, match: re.Match[str]) -> int:
    """Return how many lines follow the one with the match."""
    return sum(1 for line in text[match.end() :].split("\n")[1:] if line.strip())


def _record(job: JobView) -> Evidence:
    code = "no Exit_status" if job.exit_code is None else f"Exit_status {job.exit_code}"
    comment = f", {job.reason}" if job.reason else ""
    return Evidence(f"{code}{comment}"[:400], _CODE_SOURCE, time_s=job.end_s)


def _memory(job: JobView, end: EndView) -> list[Evidence]:
    """Return what was asked for and what was used, where PBS counted it."""
    used = max((one.max_rss_bytes or 0 for one in end.steps), default=0)
    found = []
    if job.need.mem_bytes:
        found.append(Evidence(_size(job.need.mem_bytes), "qstat -x -f: Resource_List", "asked"))
    if used:
        source = "qstat -x -f: resources_used.mem"
        found.append(Evidence(f"{_size(used)}, as PBS sampled it", source, "used"))
    return found


def _size(number: int) -> str:
    if number >= 1 << 30:
        return f"{number / (1 << 30):.1f} GB"
    return f"{number / (1 << 20):.0f} MB"


def _clock(seconds: int) -> str:
    minutes, second = divmod(seconds, 60)
    return f"{minutes // 60}:{minutes % 60:02}:{second:02}"
