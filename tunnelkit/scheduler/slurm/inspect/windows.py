"""Reservations, from `scontrol show reservation -o`, and the parts of a priority, from sprio."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tunnelkit.diagnosis.evidence.cluster import PriorityPart, Window
from tunnelkit.scheduler.slurm.inspect.job import nodes_of
from tunnelkit.scheduler.slurm.inspect.nodes import keyed

#: Of `sprio -o '%Y|%S|%A|%F|%J|%P|%Q'`, after the priority itself.
_PARTS = ("site", "age", "fair share", "job size", "partition", "QOS")


def parse_windows(text: str) -> tuple[Window, ...]:
    """Return the reservations of nodes."""
    found = []
    for line in text.splitlines():
        values = keyed(line)
        start, end = _time(values.get("StartTime", "")), _time(values.get("EndTime", ""))
        nodes = nodes_of(values.get("Nodes", ""))
        if values.get("ReservationName") and start is not None and end is not None and nodes:
            flags = values.get("Flags", "").split(",")
            found.append(
                Window(
                    values["ReservationName"],
                    start,
                    end,
                    nodes,
                    maintenance="MAINT" in flags,
                    partial="CoreIDs" in values and "MAINT" not in flags,
                    magnetic="MAGNETIC" in flags,
                    users=_names(values, "Users", ("Accounts", "Groups")),
                    accounts=_names(values, "Accounts", ("Users", "Groups")),
                )
            )
    return tuple(found)


def _names(values: Mapping[str, str], key: str, others: Sequence[str]) -> frozenset[str]:
    """Return who may use a reservation, or which accounts; none if something else decides."""
    names = values.get(key, "")
    also = [values.get(other, "(null)") for other in others]
    # "-" is an exception; a user's or an account's own name may have one inside.
    is_exception = any(name.startswith("-") for name in names.split(","))
    if names in ("", "(null)") or is_exception or any(one != "(null)" for one in also):
        return frozenset()
    return frozenset(names.split(","))


def parse_priority(text: str) -> tuple[PriorityPart, ...]:
    """Return the weighted parts that are not 0."""
    for line in text.splitlines():
        total, *values = [one.strip() for one in line.split("|")]
        if re.fullmatch(r"[0-9.]+", total) and len(values) == len(_PARTS):
            return tuple(
                PriorityPart(name, int(float(value)))
                for name, value in zip(_PARTS, values, strict=True)
                if re.fullmatch(r"[0-9]{1,18}(\.[0-9]*)?", value) and float(value) >= 1
            )
    return ()


def _time(text: str) -> float | None:
    return float(text) if re.fullmatch(r"[0-9]{9,12}", text) else None
