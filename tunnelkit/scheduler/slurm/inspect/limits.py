"""`scontrol show assoc_mgr flags=qos,assoc` as limits: LIMIT(USED) each, N for no limit.

Source: print functions of scontrol 22.05 and 26.05, and what a real 22.05 printed. The text may be
one line a record (`-o`) or several.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tunnelkit.diagnosis.evidence.cluster import Limit, PartitionView
from tunnelkit.diagnosis.evidence.job import JobView
from tunnelkit.diagnosis.waiting.reasons.limit_words import LimitWord, counts
from tunnelkit.diagnosis.waiting.slurm_reasons import reason_of

_MOST_CHARACTERS = 16 << 20
_MOST_PARENTS = 30
_RECORD = re.compile(r"^(?=(?:ClusterName|QOS)=)", re.MULTILINE)
_FIELD = re.compile(r"(?:^|[\s{])([A-Za-z]+)=([^\s}]*)")
#: Who uses a QOS: `lab={MaxJobsPA=...}` in one line, `lab` in a line of its own before the rest.
_USED_BY = re.compile(r"(\S+?)(?:=\{|\s)\s*(?=MaxJobsP[AU]=)")
_VALUE = re.compile(r"(N|[0-9]{1,20})(?:\(([0-9]{1,20}(?:\.[0-9]+)?)\))?")
#: Limits on one number, and what they count.
_SCALARS = {
    "GrpJobs": "jobs",
    "GrpSubmitJobs": "submit",
    "GrpWall": "wall",
    "MaxJobs": "jobs",
    "MaxSubmitJobs": "submit",
    "MaxWallPJ": "wall",
    "MaxJobsPU": "jobs",
    "MaxSubmitJobsPU": "submit",
    "MaxJobsPA": "jobs",
    "MaxSubmitJobsPA": "submit",
}


@dataclass(frozen=True, slots=True)
class _Record:
    """One association or QOS. used_by: of a QOS: what each account and user has of it."""

    fields: Mapping[str, str]
    used_by: Mapping[str, Mapping[str, str]]


def limits_of(
    text: str, job: JobView, partitions: Sequence[PartitionView] = ()
) -> tuple[Limit, ...]:
    """Return the limits that the job's reason can mean; none if it names no limit.

    Of the job's association and the accounts above it, or of its QOS and its partition's own. If
    neither has such a limit, the one other QOS that is full. Malformed text has no limits."""
    word = reason_of(job.reason).limit
    if word is None:
        return ()
    records = [_record(part) for part in _RECORD.split(text[:_MOST_CHARACTERS])[1:]]
    if word.owner == "account":
        return tuple(_of_associations(records, job, word))
    names = job.partition.split(",")
    own = {one.qos: one.name for one in partitions if one.qos and one.name in names}
    return tuple(_of_qos(records, job, word, own))


def _record(text: str) -> _Record:
    own, _, rest = text.partition("Account Limits")
    pieces = _USED_BY.split(rest)
    names = (name.partition("(") for name in pieces[1::2])
    used_by: dict[str, Mapping[str, str]] = {}
    for (name, _, number), body in zip(names, pieces[2::2], strict=False):
        used_by[name] = used_by[number.rstrip(")")] = _fields(body)
    return _Record(_fields(own), used_by)


def _fields(text: str) -> dict[str, str]:
    return {match[1]: match[2] for match in _FIELD.finditer(text)}


def _of_associations(records: list[_Record], job: JobView, word: LimitWord) -> Iterator[Limit]:
    found = [one.fields for one in records if "Account" in one.fields]
    user = _association(found, job.account, job.user, job.partition)
    if user is not None:
        yield from _limits(user, f"user {job.user} (account {job.account})", word)
    if user is not None and not word.field.startswith("Grp"):
        return  # what its accounts allow each user is in the user's own record
    name = job.account
    for _ in range(_MOST_PARENTS):
        account = _association(found, name, "", "")
        if account is None:
            return
        yield from _limits(account, f"account {name}", word)
        name = account.get("ParentAccount", "").partition("(")[0]


def _association(
    records: list[dict[str, str]] | list[Mapping[str, str]], account: str, user: str, partition: str
) -> Mapping[str, str] | None:
    """Return the record of an account and user; the one of the partition before the general one."""
    found = [
        one
        for one in records
        if one["Account"] == account
        and one.get("UserName", "").partition("(")[0] == user
        and one.get("Partition", "") in ("", partition)
    ]
    return max(found, key=lambda one: one.get("Partition", ""), default=None)


def _of_qos(
    records: list[_Record], job: JobView, word: LimitWord, partitions: Mapping[str, str]
) -> Iterator[Limit]:
    """partitions: names by their own QOS."""
    uids = {
        one.fields["UserName"].partition("(")[2].rstrip(")")
        for one in records
        if one.fields.get("UserName", "").partition("(")[0] == job.user
    }
    names = {job.user, *uids} if word.field.endswith("PU") else {job.account}
    own: list[Limit] = []
    theirs: list[Limit] = []
    others: list[Limit] = []
    for one in records:
        name = one.fields.get("QOS", "").partition("(")[0]
        if not name:
            continue
        found = list(_of_one_qos(one, f"QOS {name}", names, word))
        if name in partitions:
            owner = f"QOS {name} of partition {partitions[name]}"
            theirs += [replace(each, owner=owner, partition=partitions[name]) for each in found]
        else:
            (own if name == job.qos else others).extend(found)
    if own or theirs:
        yield from _both(own, theirs)
        return
    full = [one for one in others if one.used >= one.limit]
    yield from full if len({one.owner for one in full}) == 1 else ()


def _both(own: list[Limit], theirs: list[Limit]) -> Iterator[Limit]:
    """A limit of the partition's QOS stands in for the same one of the job's QOS, unless that has
    the flag OverPartQOS, which is not known here."""
    mine = {one.what for one in own}
    yield from (replace(one, partition="") if one.what in mine else one for one in theirs)
    both = {one.what for one in theirs}
    yield from (one for one in own if one.what not in both)


def _of_one_qos(one: _Record, owner: str, names: set[str], word: LimitWord) -> Iterator[Limit]:
    yield from _limits(one.fields, owner, word)
    if word.field.endswith(("PU", "PA")):
        used = [one.used_by[name] for name in sorted(names) if name in one.used_by]
        yield from _limits(used[0] if used else {}, owner, word)


def _limits(fields: Mapping[str, str], owner: str, word: LimitWord) -> Iterator[Limit]:
    text = fields.get(word.field, "")
    for what, value in _values(word.field, text):
        match = _VALUE.fullmatch(value)
        if match and match[1] != "N" and counts(word, word.field, what):
            yield Limit(owner, word.field, what, float(match[1]), float(match[2] or 0))


def _values(field: str, text: str) -> Iterator[tuple[str, str]]:
    if field in _SCALARS:
        yield _SCALARS[field], text
        return
    for item in text.split(","):
        what, _, value = item.rpartition("=")
        yield what, value
