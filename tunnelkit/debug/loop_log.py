"""A loop's log as its agent sends it, read by who believes nothing of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tunnelkit.debug.dap.messages import Message
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.loop_records import EVENT, LoopRecord, RecordReader, event_payload

#: Words of the session to its terminals, which no agent may put into its mouth.
_SESSIONS_OWN = frozenset({"loop", "lost", "notice", "time-limit"})
_MAX_WHY_CHARS = 200


async def read_log(channel: Channel) -> AsyncIterator[tuple[LoopRecord, Message]]:
    """Each record, and its event ({} for output). Raises RecordError."""
    reader = RecordReader()
    while data := await channel.read():
        for record in reader.feed(data):
            event = record.event() if record.kind == EVENT else {}
            if event.get("event") not in _SESSIONS_OWN:
                yield record, event


def no_log(error: Exception) -> LoopRecord:
    """The record for the loop's terminals when its log could not be read."""
    why = f"{type(error).__name__}: {error}"[:_MAX_WHY_CHARS]
    text = f"the agent sent what is no log of a loop ({why}); the loop can't be watched"
    return notice(text)


def notice(text: str) -> LoopRecord:
    """The record of a sentence for the loop's terminals."""
    return LoopRecord(EVENT, 0, event_payload("notice", text=text))


def still_ends(run: int) -> str:
    """A sentence on a program that is over but for its own work; nothing ends that unasked."""
    return (
        f"run {run} · over, and still at work: atexit functions, or child processes. The next F5 "
        "ends it"
    )


def too_many(run: int, most: int) -> str:
    """A sentence on ranks that run free, as there are so many that can be debugged."""
    return (
        f"run {run} · {most:,} ranks can be debugged at once, the others run free. Choose yours: "
        "tk loop --rank 0-7 ..."
    )
