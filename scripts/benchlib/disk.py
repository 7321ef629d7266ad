"""A disk as a laptop's is, for what writes many files.

ext4 without a journal (which some virtual machines have) searches past every inode that was freed
in the last minutes, so that a bench there measures its own deletes, and rsync's copies get slower
with each round. As root an ext4 with a journal, in a file, takes its place.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Sparse: what is not written takes no space.
_SIZE_BYTES = 16 << 30
#: Small files, and many: one inode for each so many bytes.
_BYTES_PER_INODE = 4096
_PROGRAMS = ("mkfs.ext4", "mount", "umount")


@contextmanager
def place(directory: str | None) -> Iterator[str]:
    """Where the files are to be. directory: what a person chose; None: /tmp, or an image with a
    journal in it, where that makes a difference and can be had."""
    if directory is not None:
        yield directory
        return
    base = "/tmp"  # noqa: S108 (a short path, for sockets)
    if os.geteuid() != 0 or not lacks_journal(base) or not all(map(shutil.which, _PROGRAMS)):
        yield base
        return
    with image(Path(base)) as mounted:
        yield str(mounted)


def lacks_journal(
    directory: str,
    *,
    mounts: Path = Path("/proc/self/mountinfo"),
    jbd2: Path = Path("/proc/fs/jbd2"),
) -> bool:
    """Whether it lies on an ext4 whose changes go through no journal (jbd2 shows each it has)."""
    info = os.stat(directory)
    device = f"{os.major(info.st_dev)}:{os.minor(info.st_dev)}"
    for line in mounts.read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, source = after.split()[:2]
        if before.split()[2] == device and kind == "ext4":
            name = os.path.basename(os.path.realpath(source))
            return not any(jbd2.glob(f"{name}-*"))
    return False


@contextmanager
def image(base: Path) -> Iterator[Path]:
    """An ext4 with a journal, mounted; gone afterwards."""
    home = Path(tempfile.mkdtemp(prefix="tkd", dir=base))
    file, mounted = home / "image", home / "m"
    mounted.mkdir()
    try:
        with file.open("wb") as stream:
            stream.truncate(_SIZE_BYTES)
        _do("mkfs.ext4", "-q", "-F", "-i", str(_BYTES_PER_INODE), "-m", "0", str(file))
        # Its tables are not to be zeroed while something is measured.
        _do("mount", "-o", "loop,noinit_itable", str(file), str(mounted))
        try:
            mounted.chmod(0o1777)
            yield mounted
        finally:
            # A daemon of the lab's may take a moment to end: it goes with the last of them.
            _do("umount", "-l", str(mounted))
    finally:
        shutil.rmtree(home, ignore_errors=True)


def flush() -> None:
    """What was written before is not written while something is measured. Twice: what lies in an
    image is written to the image first, which is a file itself."""
    os.sync()
    os.sync()


def _do(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120.0)
    if done.returncode != 0:
        raise RuntimeError(f"{argv[0]}: {done.stderr.strip() or done.returncode}")
