"""One loop of a session with the terminals that watch it."""

from __future__ import annotations

from collections import deque

from tunnelkit.debug.dap.editor_port import EditorPort
from tunnelkit.debug.loop import DebugLoop
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.loop_records import EVENT, LoopRecord, event_payload
from tunnelkit.session.debugging.loop_log_file import LoopLogFile
from tunnelkit.session.debugging.loop_watcher import LoopWatcher

_HISTORY = 200
_HISTORY_BYTES = 16 * 1024 * 1024


class SessionLoop:
    """One loop with the terminals that watch it."""

    def __init__(self, loop: DebugLoop, port: EditorPort, own_port: bool) -> None:
        self.loop = loop
        self.port = port
        self.own_port = own_port
        #: True if the loop restarts when files have changed on the node
        self.reload = False
        #: The nodes that it has parts on; empty for the first node alone.
        self.nodes: list[str] = []
        #: Variables that tk gave those parts, as the nodes had none of these names.
        self.given: list[str] = []
        #: Recent records, for a terminal that connects later.
        self.history: deque[LoopRecord] = deque()
        self._history_bytes = 0
        self._watchers: list[LoopWatcher] = []

    def record(self, record: LoopRecord) -> None:
        """Send a record to all terminals."""
        self._remember(record)
        self._send(record)

    def notice(self, text: str) -> None:
        """Send a message to the user at the loop's terminals; it is not logged."""
        self._send(LoopRecord(EVENT, 0, event_payload("notice", text=text)))

    def watch(self, channel: Channel) -> None:
        """Show the loop on `channel`, beginning with its recent records."""
        watcher = LoopWatcher(channel)
        watcher.begin()
        for record in self.history:
            watcher.send(record)
        self._watchers.append(watcher)

    def end_watch(self, channel: Channel) -> None:
        """Send the rest to a terminal whose channel is closed next."""
        for watcher in self._watchers:
            if watcher.channel is channel:
                watcher.end()
        self._watchers = [one for one in self._watchers if one.channel is not channel]

    def _send(self, record: LoopRecord) -> None:
        self._watchers = [one for one in self._watchers if not one.channel.is_over]
        for watcher in self._watchers:
            watcher.send(record)

    def _remember(self, record: LoopRecord) -> None:
        self.history.append(record)
        self._history_bytes += len(record.payload)
        while len(self.history) > _HISTORY or self._history_bytes > _HISTORY_BYTES:
            self._history_bytes -= len(self.history.popleft().payload)


class Recorder:
    """Takes a loop's records to the log and to the terminals that watch it."""

    def __init__(self, log: LoopLogFile) -> None:
        self._log = log
        self.loop: SessionLoop | None = None

    def record(self, record: LoopRecord) -> None:
        """Take a record."""
        self._log.write(record)
        if self.loop is not None:
            self._log.note(self.loop.loop.id, record)
            self.loop.record(record)
