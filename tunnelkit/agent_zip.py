"""The agent as one file: a zip built from agent/, debuggee/, mux/ and wire/, named by its digest.

Built the same byte for byte from the same sources (fixed times, order and
modes), so a node that has the digest needs nothing sent. Comments, docstrings, return
types and imports for type checking are left out; line numbers stay, so a traceback from
the node names the right line.
"""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

ROOMS = ("wire", "mux", "debuggee", "agent")
#: The session sends it itself, as text.
_NOT_PACKED = "evaluated"
#: Limit of the zip's size, held by a test: every first use of a cluster sends it.
BUDGET_BYTES = 132 << 10

#: Runs with byte code if agent/compile_zip.py has put a complete file beside the zip: it ends with
#: its checksum. Otherwise it uses the sources and removes a damaged file; the next `tk up` has it
#: written again.
_MAIN = b"""import os
import sys
import zlib
compiled = f"{sys.path[0][:-4]}-{sys.implementation.cache_tag}.zip"
try:
    with open(compiled, "rb") as file:
        data = file.read()
    if data[-8:] == b"%08x" % zlib.crc32(data[:-8]):
        sys.path[0] = compiled
    else:
        os.unlink(compiled)
    del data
except OSError:
    pass
from tunnelkit.agent.main import main
sys.exit(main(sys.argv[1:]))
"""
_EPOCH = (1980, 1, 1, 0, 0, 0)

#: Matches text that may hold a `#` or a quote, and text to remove. `doc` comes first: a string
#: that is a whole statement, at the head of the file or of a block. ast and tokenize find the
#: same, but take 0.25 s of each `tk up`; this takes 0.01 s. A test compares the two.
_TOKEN = re.compile(
    r"""
      (?P<doc> (?: \A | (?<=:\n) ) (?P<indent> [ \t]* )
        (?: \"{3} (?: \\. | [^\\] )*? \"{3} | " (?: \\. | [^"\\\n] )+ " ) (?= [ \t]* $ ) )
    | (?P<text> \"{3} (?: \\. | [^\\] )*? \"{3} | '{3} (?: \\. | [^\\] )*? '{3}
        | " (?: \\. | [^"\\\n] )* " | ' (?: \\. | [^'\\\n] )* ' )
    | (?P<returns> (?<=\)) [ ] -> [ ] [^\n]+? (?= : $ ) )
    | (?P<types> ^ if [ ] TYPE_CHECKING: \n (?: (?: [ ]{4} [^\n]* )? \n )+ (?! else ) (?= \S ) )
    | (?P<comment> [ \t]* [#] [^\n]* )
    """,
    re.VERBOSE | re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Payload:
    """The zip's bytes, the sha256 that names it, and its kind: "agent" or "probe"."""

    data: bytes
    digest: str
    kind: str

    @property
    def file_name(self) -> str:
        """Name of the file on the cluster."""
        return f"{self.kind}-{self.digest[:32]}.zip"


@lru_cache(maxsize=1)
def build() -> Payload:
    """Build the payload from the installed package's sources."""
    package = Path(__file__).parent
    files = {"__main__.py": _MAIN, "tunnelkit/__init__.py": _read(package / "__init__.py")}
    for room in ROOMS:
        files.update(stripped_files(package, room))
    return pack(files, "agent")


def stripped_files(package: Path, room: str) -> dict[str, bytes]:
    """Return a room's modules by their name in the zip."""
    files = {}
    for path in sorted((package / room).rglob("*.py")):
        if _NOT_PACKED not in path.parts[len(package.parts) :]:
            name = f"tunnelkit/{path.relative_to(package).as_posix()}"
            files[name] = strip(_read(path).decode("utf-8")).encode("utf-8")
    return files


def pack(files: Mapping[str, bytes], kind: str) -> Payload:
    """Pack files, the same byte for byte from the same ones."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(files):
            info = zipfile.ZipInfo(name, _EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            info.create_system = 3
            archive.writestr(info, files[name])
    data = buffer.getvalue()
    return Payload(data, hashlib.sha256(data).hexdigest(), kind)


def strip(source: str) -> str:
    """Return `source` without what only its readers need; each statement keeps its line."""
    return _TOKEN.sub(_kept, source)


def _kept(token: re.Match[str]) -> str:
    if token["text"] is not None:
        return token[0]
    # A block may hold nothing else. Nothing may stand before a module's __future__ import.
    body = f"{token['indent']}pass" if token["indent"] else ""
    return body + "\n" * token[0].count("\n")


def _read(path: Path) -> bytes:
    return path.read_bytes().replace(b"\r\n", b"\n")
