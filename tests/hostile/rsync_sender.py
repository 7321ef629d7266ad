"""An rsync sender that sends what it likes: protocol 30, spoken by a program on the login host.

Run as `python rsync_sender.py SCRIPT --server --sender ...`. SCRIPT is JSON, a list of entries
{"name", "mode", "size", "target", "fill"} in the order in which rsync sorts them: `size` is
what the list says, `fill` how many bytes are sent; "repeat" sends the entry under so many names.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import struct
import sys
import threading
from collections.abc import Iterator
from typing import Any

_LONG_NAME, _TOP_DIR = 1 << 6, 1 << 0
_TRANSFER = 1 << 15
_CHUNK = 32 << 10
_DATA = 7
_DONE = b"\0"
#: The client waits for the sender's end, and the sender knows no word that is the last.
_GOODBYE_S = 0.3


def varlong(value: int, least: int) -> bytes:
    """An integer as protocol 30 writes it."""
    raw = b"\0" + struct.pack("<q", value)
    count = 8
    while count > least and raw[count] == 0:
        count -= 1
    bit = 1 << (7 - count + least)
    if raw[count] >= bit:
        count += 1
        first = ~(bit - 1) & 0xFF
    elif count > least:
        first = raw[count] | (~(bit * 2 - 1) & 0xFF)
    else:
        first = raw[count]
    return bytes([first]) + raw[1:count]


class Sender:
    """One transfer over stdin and stdout."""

    def __init__(self, entries: list[dict[str, Any]]) -> None:
        self._entries = entries
        self._skipped = 0
        self._asked = threading.Event()

    def run(self) -> None:
        """Ends when all is sent, or the client has ended."""
        self._skip_words()
        os.write(1, struct.pack("<i", 30))
        self._skip_int()  # its version
        os.write(1, b"\0")  # no compatibility flags
        os.write(1, struct.pack("<i", 1))  # the seed of sums
        self._skip_int()  # a header, and its filter rules: none
        self._skip_int()
        self._skip_words()  # the names that it is asked for
        drain = threading.Thread(target=self._drain, daemon=True)
        drain.start()
        self._list()
        self._asked.wait()  # it has made the directories, and asks for files or is through
        for entry in self._each():
            self._content(entry)
        self._send(_DONE * 3 + b"".join(varlong(1, 3) for _ in range(5)))
        drain.join(_GOODBYE_S)

    def _skip_int(self) -> None:
        for _ in range(4):
            os.read(0, 1)

    def _skip_words(self) -> None:
        last = b""
        while (data := os.read(0, 1)) and (last, data) != (b"\0", b"\0"):
            last = data

    def _drain(self) -> None:
        while os.read(0, 1 << 16):
            self._asked.set()
        self._asked.set()

    def _send(self, data: bytes) -> None:
        for start in range(0, len(data), _CHUNK):
            part = data[start : start + _CHUNK]
            whole = struct.pack("<I", _DATA << 24 | len(part)) + part
            while whole:
                whole = whole[os.write(1, whole) :]

    def _each(self) -> Iterator[dict[str, Any]]:
        for entry in self._entries:
            for count in range(entry.get("repeat", 0)):
                yield {**entry, "name": f"{entry['name']}{count:08}"}
            if "repeat" not in entry:
                yield entry

    def _list(self) -> None:
        out = b""
        for entry in self._each():
            name = entry["name"].encode()
            out += bytes([_LONG_NAME | _TOP_DIR]) + varlong(len(name), 1) + name
            out += varlong(entry.get("size", 0), 3) + varlong(2_000_000_000, 4)
            mode = entry.get("mode", stat.S_IFREG | 0o644)
            out += struct.pack("<i", mode)
            if stat.S_ISLNK(mode):
                target = entry["target"].encode()
                out += varlong(len(target), 1) + target
            if len(out) > _CHUNK:
                self._send(out)
                out = b""
        self._send(out + b"\0")

    def _content(self, entry: dict[str, Any]) -> None:
        if not stat.S_ISREG(entry.get("mode", stat.S_IFREG)):
            self._skipped += 1
            return
        step, self._skipped = 1 + self._skipped, 0
        size = entry.get("fill", entry.get("size", 0))
        self._send(bytes([step]) + struct.pack("<H", _TRANSFER) + struct.pack("<4i", 0, 0, 0, 0))
        summed, data = hashlib.md5(usedforsecurity=False), b"EVIL" * (_CHUNK // 4)
        while size > 0:
            part = data[:size]
            summed.update(part)
            self._send(struct.pack("<i", len(part)) + part)
            size -= len(part)
        self._send(struct.pack("<i", 0) + summed.digest())


if __name__ == "__main__":
    with open(sys.argv[1]) as script:
        Sender(json.load(script)).run()
