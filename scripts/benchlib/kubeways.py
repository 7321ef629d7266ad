"""By hand with a pod: `kubectl port-forward` in a loop, and the program that waits in the pod."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchlib import peer
from benchlib.f5editor import Target
from benchlib.kuberig import POD, PodRig
from benchlib.rig import background, free_port, listener, listens, wait_until

BY_HAND = "kubectl port-forward + debugpy --listen"
#: The adapter listens before the debuggee has reached it.
_SETTLE_S = 1.0
_QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


@contextmanager
def port_forward(rig: PodRig, near: int, far: int) -> Iterator[None]:
    """`while true; do kubectl port-forward ...; done`, as it ends by itself."""
    words = rig.kubectl("port-forward", "--address", "127.0.0.1", POD, f"{near}:{far}")
    shell = f"while true; do {shlex.join(words)}; done"
    with background(["sh", "-c", shell], env=rig.environ, **_QUIET) as loop:
        wait_until(lambda: listens(near), "kubectl port-forward")
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(loop.pid, signal.SIGTERM)


@contextmanager
def in_pod(rig: PodRig, script: str) -> Iterator[subprocess.Popen[bytes]]:
    """A shell script in the pod; ended afterwards with all that it started."""
    argv = rig.kubectl("exec", "-i", POD, "--", "setsid", "sh", "-c", f"echo $$; {script}")
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "env": rig.environ}
    with background(argv, **options) as process:
        assert process.stdout is not None
        group = int(process.stdout.readline())
        try:
            yield process
        finally:
            with contextlib.suppress(RuntimeError):
                rig.by_hand("exec", POD, "--", "sh", "-c", f"kill -KILL -- -{group}")


@contextmanager
def peer_in_pod(rig: PodRig) -> Iterator[int]:
    """The server of the forwards' bench in the pod; its port there."""
    text = Path(peer.__file__).read_bytes()
    rig.by_hand("exec", "-i", POD, "--", "sh", "-c", "cat >/tmp/peer.py", stdin=text)
    with in_pod(rig, "exec python3 /tmp/peer.py") as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())


class ByHandWay:
    """debugpy in a loop in the pod, reached through port-forward in a loop."""

    name = BY_HAND

    def __init__(self, rig: PodRig, near: int, far: int, script: Path, line: int) -> None:
        self._rig, self._near, self._far = rig, near, far
        mappings = ((str(rig.project), str(rig.remote_project)),)
        self.target = Target(near, str(script), line, mappings)

    def arm(self) -> None:
        """A new listener in the pod, and the forward that leads to it."""
        table = Path(f"/proc/{self._rig.pid}/net/tcp")
        seen, since = listener(self._far, table), time.monotonic()

        def settled() -> bool:
            nonlocal seen, since
            now = listener(self._far, table)
            if now != seen:
                seen, since = now, time.monotonic()
            there = now is not None and listens(self._near)
            return there and time.monotonic() - since > _SETTLE_S

        wait_until(settled, self.name, timeout_s=60.0)


@contextmanager
def by_hand_way(rig: PodRig, script: Path, line: int) -> Iterator[ByHandWay]:
    near, far = free_port(), free_port()
    remote = str(rig.remote_project / script.name)
    listen = ["python3", "-m", "debugpy", "--listen", f"127.0.0.1:{far}", "--wait-for-client"]
    loop = f"while true; do {shlex.join([*listen, remote])}; done >/dev/null 2>&1"
    with in_pod(rig, loop), port_forward(rig, near, far):
        yield ByHandWay(rig, near, far, script, line)
