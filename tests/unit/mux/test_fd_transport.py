"""A link's pipe holds as much as Linux lets it: what sshd can't put into it costs sshd dearly."""

from __future__ import annotations

import fcntl
import os
import sys

import pytest

from tunnelkit.mux.fd_transport import FdLink

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="pipes have one size elsewhere")


async def test_the_pipe_it_reads_is_widened() -> None:
    read_end, write_end = os.pipe()
    lost: list[str] = []
    link = FdLink(read_end, write_end, on_data=lambda data: None, more=list, on_lost=lost.append)
    try:
        link.start()
        assert fcntl.fcntl(write_end, fcntl.F_GETPIPE_SZ) == 1 << 20
    finally:
        link.stop("over")
        os.close(read_end)
        os.close(write_end)
    assert lost == ["over"]
