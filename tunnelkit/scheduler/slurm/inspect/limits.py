"""Limits with what is used of them, from `scontrol show assoc_mgr`.

`GrpTRES=cpu=N(0),gres/gpu=1(1)` is LIMIT(USED), N for none. Source: slurmctld's assoc_mgr.c, 22.05.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tunnelkit.diagnosis.evidence.cluster import Limit

_QOS = re.compile(r"^QOS=(.*?)\([0-9]*\)$")
_ASSOCIATION = re.compile(r"\bAccount=(\S*) UserName=([^\s(]*)")
#: `GrpJobs=5(2)`; `GrpTRES=cpu=N(0),gres/gpu=1(1)`.
_FIELD = re.compile(r"(\w+)=((?:[\w/:.-]+=)?(?:N|[0-9.]+)?\([0-9.]+\)\S*)")
_VALUE = re.compile(r"(?:([\w/:.-]+)=)?(N|[0-9.]+)?\(([0-9.]{1,20})\)")
_SECTIONS = {"Account Limits": "account", "User Limits": "user"}


@dataclass
class _Place:
    """Where the parser is: whose limits the next lines tell."""

    owner: str = ""
    qos: str = ""
    part: str = ""
    wanted: bool = False


def parse_limits(text: str, *, user: str = "") -> tuple[Limit, ...]:
    """Return the limits of accounts, of that user and of QOS; those that are not set are left
    out."""
    place = _Place()
    found: list[Limit] = []
    for line in text.splitlines():
        if _moves(line, place, user):
            continue
        for field in _FIELD.finditer(line) if place.wanted else ():
            for value in _VALUE.finditer(field[2]):
                if value[2] not in (None, "N"):
                    what = value[1] or _what(field[1])
                    limit, used = _float(value[2]), _float(value[3])
                    if limit is not None and used is not None:
                        found.append(Limit(place.owner, field[1], what, limit, used))
    return tuple(found)


def _moves(line: str, place: _Place, user: str) -> bool:
    """True if the line says whose limits follow."""
    words = line.strip()
    if match := _QOS.match(words):
        place.owner, place.qos, place.part = f"QOS {match[1]}", match[1], ""
        place.wanted = True
    elif match := _ASSOCIATION.search(words):
        account, name = match[1], match[2]
        place.qos = place.part = ""
        place.owner = f"user {name} in account {account}" if name else f"account {account}"
        place.wanted = not name or name == user
    elif words in _SECTIONS and place.qos:
        place.part, place.wanted = _SECTIONS[words], False
    elif place.part and words and "=" not in words:
        name = re.sub(r"\([0-9]+\)$", "", words)
        place.owner = f"{place.part} {name} in QOS {place.qos}"
        # Users are named by number or by name; only the asking user's count.
        place.wanted = place.part == "account" or name == user or words.isdecimal()
    else:
        return False
    return True


def _what(name: str) -> str:
    """Return what a limit without a resource counts, by its name."""
    if "Submit" in name:
        return "submitted jobs"
    return "minutes" if "Wall" in name else "jobs"


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
