"""Output of several nodes as one stream, in which their lines don't mix."""

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


class OneStream:
    """Joins output of several nodes. Lines come whole, but for those that took too long.

    The rest of such a line follows the first part of it. If another node has written meanwhile, the
    line comes whole again, on a line of its own."""

    def __init__(self) -> None:
        #: By kind: the node whose line has no end yet; None: the last line has its end.
        self._open: dict[int, int | None] = {}
        #: By kind and node: the line of that node that has no end yet.
        self._begun: dict[tuple[int, int], bytes] = {}

    def feed(self, record: LoopRecord) -> LoopRecord:
        """Take a piece of a node's output, and return what is written of it."""
        kind, part, data = record.kind, record.part, record.payload
        begun, before = self._begun.pop((kind, part), b""), self._open.get(kind)
        line = data[max(data.rfind(b"\n"), data.rfind(b"\r")) + 1 :]
        if line == data:
            line = begun + data
        self._open[kind] = part if line else None
        if 0 < len(line) <= _MOST_BYTES:
            self._begun[kind, part] = line
        if before != part:
            data = (b"" if before is None else b"\n") + begun + data
        return record._replace(payload=data)
