"""A login host whose PATH lacks rsync, or has another tar."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.mirror_sshd import Sshd


@contextmanager
def far_path(
    sshd: Sshd, directory: Path, *, without: tuple[str, ...], tar: str = "tar"
) -> Iterator[None]:
    """While it lasts, `sshd` gives its commands all programs but `without`, and `tar` is that
    of the name. Skips the test if this machine has no such program."""
    program = shutil.which(tar)
    if program is None:
        pytest.skip(f"{tar} is needed: apt install libarchive-tools busybox")
    directory.mkdir()
    for place in ("/usr/local/bin", "/usr/bin", "/bin"):
        for name in os.listdir(place) if os.path.isdir(place) else ():
            link = directory / name
            if name not in (*without, "tar") and not link.is_symlink():
                link.symlink_to(f"{place}/{name}")
    if "tar" not in without:
        (directory / "tar").symlink_to(program)
    config = sshd.directory / "sshd_config"
    plain = config.read_text()
    sshd.stop()
    # After the login shell's own start-up files, which may add to PATH.
    config.write_text(
        f'{plain}ForceCommand PATH={directory} exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"\n'
    )
    sshd.start()
    try:
        yield
    finally:
        sshd.stop()
        config.write_text(plain)
        sshd.start()
