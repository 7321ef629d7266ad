"""The script that reads a log on the login host, and its answers cut into frames.

All content is base64, so that neither the log nor a login shell's greeting can look like a frame.
One script follows the file: it polls the size once a second, since no file system on a network
reports what other hosts write. It opens the file each time, because NFS asks the server only
then. It ends by itself after a while, so that none is left behind by a link that died.
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

#: Looks of one script that follows, one a second.
POLLS = 600
#: What a cut link loses of its way, at most.
_PIECE_BYTES = 128 * 1024
_LONGEST_LINE = 4096
_GZIP = 16 + zlib.MAX_WBITS

# $1 the file, $2 the mark before each frame, $3 the offset to begin at, or -N: N bytes before the
# end, $4 the file's last known identity or "", $5 how often to look, $6 of a file seen for
# the first time the last so many lines; "": all, $7 the file's name if $1 is a directory, or "".
_SCRIPT = r"""
LC_ALL=C
export LC_ALL
path=$1 mark=$2 offset=$3 identity=$4 polls=$5 lines=$6 name=$7
say() { printf '%s %s\n' "$mark" "$*"; }
pack=cat codec=plain
[ "$(printf x | gzip -1 2>/dev/null | gzip -d 2>/dev/null)" = x ] && pack='gzip -1' codec=gzip
state=
while :; do
  found= file=$path
  [ -z "$name" ] || [ ! -d "$path" ] || file=${path%/}/$name
  if [ -f "$file" ]; then
    now=denied
    { : <"$file"; } 2>/dev/null && found=$(stat -L -c '%d:%i %s' -- "$file" 2>/dev/null)
  elif [ -e "$file" ]; then
    now=special
  else
    now=none
    ls -f -- "$(dirname -- "$file")" 2>/dev/null | head -n 1 >/dev/null
  fi
  case $found in
  *:*' '*[0-9])
    new=${found% *} size=${found##* }
    if [ -z "$identity" ]; then
      [ -z "$lines" ] || offset=-$(tail -n "$lines" -- "$file" | wc -c)
      [ "$offset" != -0 ] || [ "$lines" = 0 ] || offset=0 # what fails here fails below, too
      case $offset in -*) offset=$((size + offset)) ;; esac
      [ "$offset" -ge 0 ] || offset=0
    elif [ "$new" != "$identity" ]; then
      say replaced
      offset=0 state=
    elif [ "$size" -lt "$offset" ]; then
      say truncated
      offset=0 state=
    fi
    identity=$new
    [ "$state" = file ] || say file "$identity" "$offset" "$size"
    state=file
    while [ "$offset" -lt "$size" ]; do
      piece=$((size - offset))
      [ "$piece" -le @PIECE@ ] || piece=@PIECE@
      say data "$codec"
      tail -c +$((offset + 1)) -- "$file" | head -c "$piece" | $pack | base64
      say end "$piece"
      offset=$((offset + piece))
    done
    ;;
  *)
    [ "$state" = "$now" ] || say "$now"
    state=$now
    ;;
  esac
  polls=$((polls - 1))
  [ "$polls" -gt 0 ] || break
  say idle
  sleep 1
done
say over
""".replace("@PIECE@", str(_PIECE_BYTES))


class FrameKind(Enum):
    """The kind of a frame.

    FILE: the file was opened. DATA: a part of it. REPLACED: it is another file now. TRUNCATED: it
    is shorter than what was read. NONE, DENIED, SPECIAL: it is not there, may not be read, is no
    regular file. IDLE: nothing new. OVER: all looks are done.
    """

    FILE = "file"
    DATA = "data"
    REPLACED = "replaced"
    TRUNCATED = "truncated"
    NONE = "none"
    DENIED = "denied"
    SPECIAL = "special"
    IDLE = "idle"
    OVER = "over"


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame. identity, offset, size: of FILE. data: of DATA. whole: the file had all of it."""

    kind: FrameKind
    data: bytes = b""
    whole: bool = True
    identity: str = ""
    offset: int = 0
    size: int = 0


class FrameError(Exception):
    """The bytes are no frames."""


def read_argv(
    place: tuple[str, str],
    mark: str,
    *,
    offset: int,
    identity: str,
    polls: int,
    lines: int | None,
) -> list[str]:
    """Return the command for the login host. See the script's parameters.

    place: the path, and the file's name if that is a directory."""
    path, name = place
    count = "" if lines is None else str(lines)
    return ["sh", "-c", _SCRIPT, "sh", path, mark, str(offset), identity, str(polls), count, name]


class FrameReader:
    """Cuts a byte stream, split anywhere, into frames. Lines without the mark before the first
    frame are a login shell's."""

    def __init__(self, mark: str) -> None:
        self._mark = mark.encode() + b" "
        self._rest = b""
        self._began = False
        self._codec = ""
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Take the next bytes, and yield the frames that they complete. Raises FrameError."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONGEST_LINE:
            if self._began:
                raise FrameError("a line is too long")
            self._rest = self._rest[-_LONGEST_LINE:]
        for line in lines:
            if line.startswith(self._mark):
                frame = self._frame(line[len(self._mark) :].decode("ascii", "replace").split())
                self._began = True
                if frame is not None:
                    yield frame
            elif self._codec:
                self._take(line)
            elif self._began:
                raise FrameError("a line belongs to no frame")

    def _take(self, line: bytes) -> None:
        self._parts.append(line)
        self._size += len(line)
        if self._size > 2 * _PIECE_BYTES:
            raise FrameError("a piece is too large")

    def _frame(self, words: list[str]) -> Frame | None:
        kind, *rest = words or [""]
        if self._codec:
            if kind != "end" or len(rest) != 1 or not rest[0].isdigit():
                raise FrameError("a piece without an end")
            return self._data(int(rest[0]))
        if kind == "data" and rest in (["plain"], ["gzip"]):
            self._codec = rest[0]
            return None
        if kind == "file":
            return _opened(rest)
        try:
            return Frame(FrameKind(kind))
        except ValueError:
            raise FrameError(f"a frame of kind {kind[:20]!r}") from None

    def _data(self, size: int) -> Frame:
        codec, self._codec = self._codec, ""
        parts, self._parts, self._size = self._parts, [], 0
        try:
            data = base64.b64decode(b"".join(parts), validate=True)
            if codec == "gzip":
                data = zlib.decompressobj(_GZIP).decompress(data, _PIECE_BYTES + 1)
        except (binascii.Error, zlib.error):
            raise FrameError("a piece is damaged") from None
        if len(data) > min(size, _PIECE_BYTES):
            raise FrameError("a piece is larger than it says")
        return Frame(FrameKind.DATA, data, whole=len(data) == size)


def _opened(words: list[str]) -> Frame:
    text = " ".join(words)
    match = re.fullmatch(r"([0-9]{1,20}:[0-9]{1,20}) ([0-9]{1,18}) ([0-9]{1,18})", text)
    if match is None:
        raise FrameError("a file without its size")
    return Frame(FrameKind.FILE, identity=match[1], offset=int(match[2]), size=int(match[3]))
