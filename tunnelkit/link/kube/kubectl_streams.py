"""Commands and byte streams in pods, each by a `kubectl exec` of its own.

The second way in: for API servers before 1.30, which know no WebSocket exec with an end of stdin,
and for users who may `create pods/exec` but not `get` it. kubectl falls back to SPDY there.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import Sequence

from tunnelkit.child_process import (
    Lines,
    drain,
    end,
    end_drain,
    run_child,
    socket_pair,
    spawn,
    stream_pair,
)
from tunnelkit.errors import ConnectionFailed
from tunnelkit.link.kube.accepted_pods import AcceptedPods
from tunnelkit.link.kube.api_error import kubectl_said
from tunnelkit.link.kube.exec_protocol import not_started
from tunnelkit.link.kube.target import KubeTarget
from tunnelkit.link.shared.session_slots import LocalStream
from tunnelkit.model import Completed

#: kubectl's last line after a process that ended with another status than 0.
_STATUS_LINE = re.compile(rb"command terminated with exit code ([0-9]{1,3})\s*$")
_NO_STATUS = 255


def far_status(code: int, stderr: bytes) -> tuple[int | None, bytes]:
    """Return the far process's exit status and its stderr, from kubectl's.

    None: kubectl itself failed, and what it said is in stderr."""
    if code == 0:
        return 0, stderr
    found = _STATUS_LINE.search(stderr)
    if found is not None and int(found[1]) == code:
        return code, stderr[: found.start()]
    return not_started(stderr[-4096:].decode("utf-8", "replace")), stderr


class KubectlStream(LocalStream):
    """One `kubectl exec`; its status is 255 if the stream was lost."""

    def __init__(
        self, sock: socket.socket, child: asyncio.subprocess.Process, stderr: socket.socket
    ) -> None:
        self._sock = sock
        self._child = child
        self._stderr = Lines(keep=50)
        self._drained = asyncio.create_task(drain(stderr, self._stderr))
        self._ended = asyncio.create_task(self._watch())

    def diagnosis(self) -> str:
        """Return the last lines of stderr so far, kubectl's own among them."""
        return _STATUS_LINE.sub(b"", self._stderr.text().encode()).decode().strip()

    async def close(self) -> None:
        """End the stream. The far process sees its stdin end and is not killed."""
        self._sock.close()
        if not self._ended.done():
            # kubectl passes the end of its stdin on; one that is ended at once does not.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    await asyncio.shield(self._ended)
        await self.cut()

    async def cut(self) -> None:
        """End the stream with its link."""
        await end(self._child)
        await self._ended

    async def _watch(self) -> int:
        code = await self._child.wait()
        await end_drain(self._drained)
        status, _ = far_status(code, self._stderr.text().encode())
        return _NO_STATUS if status is None else status


class KubectlStreams:
    """Runs commands in the pods of `target`."""

    def __init__(self, target: KubeTarget, accepted: AcceptedPods) -> None:
        self._target = target
        self._accepted = accepted
        self._streams: set[KubectlStream] = set()
        self._commands: set[asyncio.Task[Completed]] = set()

    async def run(self, pod: str, words: Sequence[str], *, stdin: bytes) -> Completed:
        """See `base.Link.run`; the caller bounds the time."""
        argv = self._target.exec_argv(pod, words)
        task = asyncio.create_task(run_child(argv, stdin=stdin, what=f"{words[0]} in {pod}"))
        self._commands.add(task)
        try:
            done = await task
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            if (own := asyncio.current_task()) is not None and own.cancelling():
                raise
            raise self._failed(pod, "the link was closed") from None
        finally:
            self._commands.discard(task)
        status, stderr = far_status(done.exit_code, done.stderr)
        if status is None:
            raise self._failed(pod, done.error_text)
        self._accepted.add(pod)
        return Completed(status, done.stdout, stderr)

    async def open_stream(self, pod: str, words: Sequence[str]) -> KubectlStream:
        """See `base.Link.open_stream`. A refusal shows as the stream's end, in its diagnosis."""
        argv = self._target.exec_argv(pod, words)
        ours, theirs = stream_pair()
        stderr, child_stderr = socket_pair()
        try:
            child = await spawn(argv, stdin=theirs, stdout=theirs, stderr=child_stderr)
        except BaseException:
            ours.close()
            stderr.close()
            raise
        stream = KubectlStream(ours, child, stderr)
        self._streams.add(stream)
        stream._ended.add_done_callback(lambda _: self._streams.discard(stream))
        return stream

    async def close(self) -> None:
        """Cut all streams and commands."""
        for task in tuple(self._commands):
            task.cancel()
        await asyncio.gather(*(stream.cut() for stream in tuple(self._streams)))

    def _failed(self, pod: str, stderr: str) -> ConnectionFailed:
        status, text = kubectl_said(stderr)
        return self._accepted.refusal(pod, status, text, what=f"run a command in pod {pod}")
