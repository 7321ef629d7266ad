"""Parser of `qstat -f`: the text form of OpenPBS, PBS Pro and Torque, and PBS's JSON.

Both become one record a job with flat attribute names (`Resource_List.walltime`). The text
form is the one that every release prints well; the JSON is broken on many (numbers with leading
zeros, quotes in values), but holds the server's clock.
"""

from __future__ import annotations

import calendar
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tunnelkit.errors import SchedulerError, UsageError
from tunnelkit.model import check_host

_JOB_ID = re.compile(r"[0-9]+(\[[0-9]*\])?(\.[A-Za-z0-9_.:-]+)?")
_HEADER = re.compile(r"Job Id: *(\S+)\s*")
_ATTRIBUTE = re.compile(r" +([A-Za-z][A-Za-z0-9_.\-]*) = ?(.*)")
_CLOCK = re.compile(r"[0-9]{1,9}(:[0-9]{1,9}){0,3}")
_DATE = re.compile(r"\w{3} (\w{3}) +(\d{1,2}) (\d{2}):(\d{2}):(\d{2}) (\d{4})", re.ASCII)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
#: Zones differ from UTC by multiples of this.
_ZONE_STEP_S = 900
#: The execution host reports a job's usage to the server at least this often.
_USAGE_LAG_S = 300


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One job of qstat's output. now_s: the server's clock, Unix time; None if not printed."""

    job_id: str
    attributes: Mapping[str, str]
    now_s: int | None = None

    def get(self, name: str) -> str:
        """Return the attribute's text; "" if the job has none. PBS and Torque differ in case."""
        return self.attributes.get(name.lower(), "")


def check_job_id(text: str) -> str:
    """Return `text` if it is a job id. Raises UsageError."""
    if not _JOB_ID.fullmatch(text):
        raise UsageError(f"{text!r} is not a PBS job id", hint="such as 14 or 14.server")
    return text


def sequence_number(job_id: str) -> str:
    """Return `14` of `14.login`, which does not depend on how the server's name is written."""
    return job_id.partition(".")[0]


def parse_full(text: str) -> list[JobRecord]:
    """Parse the jobs of `qstat -f`. Other lines (banners) are skipped."""
    return [JobRecord(job_id, _attributes(lines)) for job_id, lines in _jobs(text)]


def parse_attributes(text: str) -> dict[str, str]:
    """Parse the attributes of one queue or server: `qstat -Qf QUEUE`, `qstat -Bf`."""
    return _attributes([line.rstrip("\r") for line in text.split("\n")])


def _attributes(lines: list[str]) -> dict[str, str]:
    attributes: dict[str, str] = {}
    name = ""
    for line in lines:
        match = _ATTRIBUTE.fullmatch(line)
        if match:
            # An environment variable with a line break could look like an attribute; it
            # comes after all that matter.
            name = match[1].lower() if match[1].lower() not in attributes else ""
            if name:
                attributes[name] = match[2]
        elif line.startswith("\t") and name:
            attributes[name] += line[1:]
    return attributes


def _jobs(text: str) -> Iterator[tuple[str, list[str]]]:
    """Split the output into job ids and the lines below each."""
    job_id, lines = "", list[str]()
    # Not splitlines(): it also splits at characters that a value may hold.
    for line in text.split("\n"):
        header = _HEADER.fullmatch(line)
        if header:
            if job_id:
                yield job_id, lines
            job_id, lines = header[1], []
        else:
            lines.append(line.rstrip("\r"))
    if job_id:
        yield job_id, lines


def parse_json(text: str) -> list[JobRecord] | None:
    """Parse the jobs of `qstat -f -F json`; None if the JSON is malformed."""
    start = text.find("{")
    try:
        data = json.loads(text[start:] if start >= 0 else "", strict=False)
        jobs = data.get("Jobs", {})
        now = data.get("timestamp")
        return [
            JobRecord(str(job_id), _flat(job), now if isinstance(now, int) else None)
            for job_id, job in jobs.items()
        ]
    except (ValueError, RecursionError, AttributeError):
        return None


def _flat(job: Mapping[str, object]) -> dict[str, str]:
    flat: dict[str, str] = {}
    for name, value in job.items():
        if isinstance(value, dict):
            flat.update({f"{name}.{key}".lower(): str(one) for key, one in value.items()})
        else:
            flat[name.lower()] = str(value)
    return flat


def nodes_of(exec_host: str) -> tuple[str, ...]:
    """Return the nodes of an exec_host, each once, first the one where the job's script runs.

    Forms: `node4/0*2+node5/1*2` (PBS), `node4/0+node4/1` and `node4/0-1` (Torque). Raises
    SchedulerError on anything else.
    """
    nodes: dict[str, None] = {}
    for part in exec_host.split("+") if exec_host else ():
        name = part.partition("/")[0].strip()
        # exec_host2 and some releases name the execution daemon's port.
        name = re.sub(r":[0-9]+$", "", name)
        try:
            nodes[check_host(name)] = None
        except UsageError:
            shown = exec_host if len(exec_host) <= 80 else exec_host[:77] + "..."
            raise SchedulerError(
                f"{shown!r} is not a list of nodes that PBS would print",
                hint="please report it: tk bugreport",
            ) from None
    return tuple(nodes)


def seconds(text: str) -> int | None:
    """Return the seconds of `HH:MM:SS` (hours may exceed 24), or of a bare number."""
    if not _CLOCK.fullmatch(text.strip()):
        return None
    total = 0
    for scale, part in zip((1, 60, 3600, 86400), reversed(text.strip().split(":")), strict=False):
        total += scale * int(part)
    return total


def format_seconds(value: int) -> str:
    """Format seconds as HH:MM:SS, for walltime."""
    minutes, second = divmod(value, 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours:02}:{minute:02}:{second:02}"


def time_left_s(record: JobRecord) -> int | None:
    """Return the seconds until a running job's time limit; None if it has none."""
    remaining = record.get("Walltime.Remaining")  # Torque
    if re.fullmatch(r"-?[0-9]{1,10}", remaining):
        return max(0, int(remaining))
    limit = seconds(record.get("Resource_List.walltime"))
    return None if limit is None else max(0, limit - _elapsed_s(record))


def _elapsed_s(record: JobRecord) -> int:
    """Return how long a job has run.

    The node's report (`resources_used`) may be minutes old. The start is printed in the
    server's zone, its clock as Unix time: the difference is known up to a multiple of a
    quarter of an hour, and the report selects the right one.
    """
    used = seconds(record.get("resources_used.walltime")) or 0
    start = unix_time(record.get("stime"))
    if start is None or record.now_s is None:
        return used
    elapsed = (record.now_s - start) % _ZONE_STEP_S
    if elapsed < used:
        elapsed += -(-(used - elapsed) // _ZONE_STEP_S) * _ZONE_STEP_S
    # Much more than was reported: the job was suspended, or a clock is off.
    return elapsed if elapsed - used <= _USAGE_LAG_S else used


def unix_time(text: str) -> int | None:
    """Return `Sat Nov 21 08:03:33 2026` as Unix time, as if it were UTC."""
    match = _DATE.fullmatch(text.strip())
    if not match or match[1] not in _MONTHS:
        return None
    month = _MONTHS.index(match[1]) + 1
    day, hour, minute, second, year = (int(match[number]) for number in range(2, 7))
    try:
        return calendar.timegm((year, month, day, hour, minute, second))
    except ValueError:
        return None
