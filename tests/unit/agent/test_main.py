"""The agent's process, told to end in its first moments."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tunnelkit.agent.links import socket_dir

#: Serves, and tells itself to end as soon as it listens. Then says what of its signals is
#: blocked when it is on its way out: what it starts would inherit that.
_SERVE = """
import os, signal, sys
from tunnelkit.agent import main
from tunnelkit.agent.links import session_links
listen, stop = main._listen, session_links.SessionLinks.stop

def listen_then_end(path):
    listener = listen(path)
    os.kill(os.getpid(), int(sys.argv[2]))
    return listener

async def tell_then_stop(self, reason):
    print(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())), reason, flush=True)
    await stop(self, reason)

main._listen, session_links.SessionLinks.stop = listen_then_end, tell_then_stop
sys.exit(main.main(["serve", sys.argv[1]]))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_end_as_soon_as_it_listens(number: signal.Signals) -> None:
    name = f"test-{uuid.uuid4().hex[:12]}"
    done = subprocess.run(
        [sys.executable, "-c", _SERVE, name, str(int(number))],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("[] ")
    assert number.name in done.stdout
    assert not list(socket_dir.find_sockets(name))
    for directory in socket_dir.candidates():
        assert not [entry for entry in _names(directory) if entry.startswith(name)]


def _names(directory: str) -> list[str]:
    return os.listdir(directory) if Path(directory).is_dir() else []
