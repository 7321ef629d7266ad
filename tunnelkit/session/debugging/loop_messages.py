"""Messages for a loop's events, for its terminal and for `tk logs`."""

from __future__ import annotations

import time
from collections.abc import Mapping

from tunnelkit.text_format import out_of_memory, shown

#: Limit of one event's text; an agent may send megabytes.
_MAX_CHARS = 4000

#: Messages of `tk logs` for events without further fields.
_PLAIN = {
    "armed": "armed: press F5",
    "attached": "attached: {client}",
    "imported": "imported {module} in {duration_s:.1f} s",
    "waiting": "next try in {delay_s:.1f} s",
    "lost": "the loop has ended: {why}",
    "skipped": "{records} pieces of output skipped",
    "no-relay": "ranks on other nodes run free, not debugged: {why}",
    "node-lost": "{node} is lost, with the ranks there: {why}",
    "no-standby": "no run stands by: {why}",
    "stale": "{why}: imports are read again",
    "rank": "rank {rank} has dialled in from {node}",
    "notice": "{text}",
    "time-limit": "{text}",
    "starting": "starting (pid {pid})",
    "loop": "loop on port {port}",
}

#: A shorter wait for an editor is not shown.
_WORTH_TELLING_S = 1.0


def event_text(event: Mapping[str, object]) -> str:
    """Return the message of an event for `tk logs`.

    Unknown events, and events with missing fields (another version's), are shown as they came."""
    name, number = str(event.get("event")), event.get("generation")
    run = f"run {number} · " if number is not None else ""
    try:
        if name == "ended":
            return f"{run}ended: {ending(event)}"
        if name == "part-ended":
            return f"{run}{event['node']} ended: {ending(event)}"
        if name == "kept":
            return f"{run}{kept_at(event)}: press F5"
        if name == "rank-kept":
            return f"{run}rank {event['rank']} {kept_at(event)}"
        if name in _PLAIN:
            return run + _PLAIN[name].format_map(event)
    except (KeyError, ValueError, TypeError, ArithmeticError):
        pass
    fields = " ".join(f"{key}={value}" for key, value in event.items() if key not in _HEAD)
    return f"{run}{name} {fields}".rstrip()[:_MAX_CHARS]


_HEAD = ("event", "time", "generation")


def at(event: Mapping[str, object]) -> str:
    """Return the time of an event by the node's clock; now if it has none."""
    try:
        told_s = time.localtime(_number(event.get("time")))
    except (TypeError, ValueError, ArithmeticError, OSError):
        told_s = time.localtime()
    return time.strftime("%Y-%m-%d %H:%M:%S", told_s)


def kept_at(event: Mapping[str, object]) -> str:
    """Return in words where a run is kept (--post-mortem)."""
    where = f" ({event['where']})" if event.get("where") else ""
    # A terminal's line may have colours, but not those of a program.
    return shown(f"kept at {event.get('error')}{where}")


def ending(event: Mapping[str, object]) -> str:
    """Return in words how a run ended."""
    if event.get("error"):
        return str(event["error"])
    how = f"signal {event['signal']}" if event.get("signal") else f"exit code {event.get('code')}"
    why = event.get("why")
    because = "" if why in (None, "ended") else f" ({why})"
    if killed := out_of_memory(event.get("oom_kills")):
        because = f"{because} ({killed})"
    lived_s = _number(event.get("duration_s", 0.0))
    waited_s = _number(event.get("waited_s") or 0.0)
    peak = f"peak {int(_number(event.get('peak_rss_bytes', 0))) // 2**20} MiB"
    if 0.0 < lived_s <= waited_s:
        return f"{how}{because} after {lived_s:.1f} s of waiting for F5, {peak}"
    waited = f" (it had waited {waited_s:.1f} s for F5)" if waited_s >= _WORTH_TELLING_S else ""
    return f"{how}{because} after {lived_s - waited_s:.1f} s, {peak}{waited}"


def _number(value: object) -> float:
    if not isinstance(value, int | float):
        raise TypeError(f"{value!r} is no number")
    return value
