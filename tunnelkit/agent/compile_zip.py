"""`compile`: the agent's zip once more, with its byte code. Each start is 50 ms quicker then.

Beside the zip, named by the interpreter; `__main__` takes it if it is there. What another
interpreter can't use of it, it reads as source.
"""

import importlib.util
import marshal
import os
import sys
import zipfile
import zlib

#: Not to be compared with the source, whose digest is in the zip's name (PEP 552).
_UNCHECKED = (1).to_bytes(4, "little")
#: The archive's comment: CRC32 as hexadecimal digits, by which `__main__` knows a damaged one.
CHECKSUM_BYTES = 8


def compiled_path(path: str) -> str:
    """The path of this interpreter's compiled zip."""
    return f"{path[:-4]}-{sys.implementation.cache_tag}.zip"


def write(path: str) -> None:
    """Write that of the zip at `path`, whole or not at all. Raises OSError."""
    target = compiled_path(path)
    temporary = "/.".join(os.path.split(target)) + f".{os.getpid()}"
    try:
        with zipfile.ZipFile(path) as source, zipfile.ZipFile(temporary, "x") as archive:
            for info in source.infolist():
                data = source.read(info)
                archive.writestr(info, data)
                if info.filename.endswith(".py"):
                    name = os.path.join(target, info.filename)  # as it is imported from
                    archive.writestr(f"{info.filename}c", _bytecode(name, data))
            archive.comment = bytes(CHECKSUM_BYTES)
        seal(temporary)
        os.replace(temporary, target)
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)


def seal(path: str) -> None:
    """Put the checksum of all before it at the end, and have it on the disk."""
    with open(path, "r+b") as archive:
        data = archive.read()[:-CHECKSUM_BYTES]
        archive.seek(len(data))
        archive.write(b"%08x" % zlib.crc32(data))
        archive.flush()
        os.fsync(archive.fileno())


def _bytecode(name: str, source: bytes) -> bytes:
    code = compile(source, name, "exec", dont_inherit=True)
    header = importlib.util.MAGIC_NUMBER + _UNCHECKED + importlib.util.source_hash(source)
    return header + marshal.dumps(code)
