"""Output of one node cut into whole lines, so that lines of several nodes don't mix."""

from __future__ import annotations

from tunnelkit.mux.loop_records import LoopRecord

#: A line without an end is passed on in pieces of this size.
_MOST_BYTES = 64 * 1024


class WholeLines:
    """`feed` gives the lines that are whole by now, `flush` the rest.

    Each has the number of the last record that is in it."""

    def __init__(self) -> None:
        self._rest: dict[int, LoopRecord] = {}

    @property
    def has_rest(self) -> bool:
        """True while there is a line without an end."""
        return bool(self._rest)

    def feed(self, record: LoopRecord) -> list[LoopRecord]:
        """Take a piece of output, and return it up to its last line's end."""
        begun = self._rest.pop(record.kind, None)
        data = (begun.payload if begun is not None else b"") + record.payload
        # A progress bar goes back to the begin of its line.
        cut = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if len(data) - cut > _MOST_BYTES:
            cut = len(data)
        if cut < len(data):
            self._rest[record.kind] = record._replace(payload=data[cut:])
        return [record._replace(payload=data[:cut])] if cut else []

    def flush(self) -> list[LoopRecord]:
        """Return the lines that have no end."""
        rest, self._rest = self._rest, {}
        return list(rest.values())
