"""`tk logs --last-error`: the traceback of the rank that failed first."""

from __future__ import annotations

import json

from tunnelkit.cli.terminal.output import note, say
from tunnelkit.diagnosis.ended.log.raised import Frame, Raised
from tunnelkit.diagnosis.ended.log.traceback import Traceback, first_failure, last_of_rank, lines_of
from tunnelkit.errors import TunnelkitError
from tunnelkit.text_format import shown


def show_last_error(data: bytes, where: str, *, as_json: bool, rank: int | None = None) -> None:
    """Print the traceback. Raises TunnelkitError if there is none.

    where: the log, for messages. rank: of that rank instead."""
    text = data.decode("utf-8", "replace")
    found = first_failure(text) if rank is None else last_of_rank(text, rank)
    if found is None:
        of = "" if rank is None else f" of rank {rank}"
        raise TunnelkitError(
            f"there is no traceback{of} in the last {len(data)} bytes of {where}",
            hint="`tk why` looks at more than the log",
        )
    if as_json:
        say(json.dumps(traceback_info(found), indent=2))
        return
    note(_heading(found, where))
    for line in lines_of(text, found):
        say(shown(line, keep="\t"))


def _heading(found: Traceback, where: str) -> str:
    parts = [] if found.rank is None else [f"rank {found.rank}"]
    parts += [f"thread {shown(found.thread)}"] if found.thread else []
    parts += [where]
    root = found.root
    if root is not None and root.exit_code is not None:
        end = (
            f"signal {-root.exit_code} ended it"
            if root.exit_code < 0
            else f"it ended with {root.exit_code}"
        )
        parts.append(f"torchrun: rank {root.rank} failed first, {end}")
    return ", ".join(parts) + ":"


def traceback_info(found: Traceback) -> dict[str, object]:
    """Return a traceback as JSON: the cause, then the chain in the order of events."""
    root = found.root
    return {
        "type": found.type,
        "message": found.message,
        "rank": found.rank,
        "thread": found.thread or None,
        "file": found.file,
        "line": found.line,
        "function": found.function,
        "source": found.source,
        "chain": [_raised_info(one) for one in found.raised],
        "torchrun": None
        if root is None
        else {
            "rank": root.rank,
            "exit_code": root.exit_code,
            "host": root.host,
            "time": root.time,
            "error_file": root.error_file or None,
        },
    }


def _raised_info(raised: Raised) -> dict[str, object]:
    return {
        "type": raised.type,
        "message": raised.message,
        "notes": list(raised.notes),
        "frames": [_frame_info(one) for one in raised.frames],
        "parts": [_raised_info(one) for one in raised.parts],
    }


def _frame_info(frame: Frame) -> dict[str, object]:
    return {
        "file": frame.file,
        "line": frame.line,
        "function": frame.function,
        "source": frame.source,
    }
