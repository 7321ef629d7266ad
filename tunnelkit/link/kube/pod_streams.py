"""Commands and byte streams in pods, by WebSocket through `kubectl proxy`."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Sequence

from tunnelkit.child_process import MOST_BYTES, MOST_ERROR_BYTES, Lines, stream_pair, too_much
from tunnelkit.errors import ConnectionFailed
from tunnelkit.link.kube import http
from tunnelkit.link.kube.accepted_pods import AcceptedPods
from tunnelkit.link.kube.api_error import said
from tunnelkit.link.kube.exec_protocol import STDERR, STDOUT, Answer, ExecProtocol, Output
from tunnelkit.link.kube.frames import FrameError
from tunnelkit.link.kube.printable import printable
from tunnelkit.link.kube.proxy import KubectlProxy
from tunnelkit.link.kube.target import KubeTarget
from tunnelkit.link.shared.session_slots import LocalStream
from tunnelkit.model import Completed

_READ_BYTES = 1 << 18
_FLUSH_S = 0.5
_NO_STATUS = 255
_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"


class _Exec:
    """One exec request that was granted."""

    def __init__(self, upgraded: http.Upgraded) -> None:
        self._reader, self._writer = upgraded.reader, upgraded.writer
        self.protocol = ExecProtocol()

    async def send(self, data: bytes) -> None:
        """Send bytes to the process's stdin. Raises OSError."""
        self._writer.write(self.protocol.stdin(data))
        await self._writer.drain()

    async def send_eof(self) -> None:
        """End the process's stdin. Raises OSError."""
        self._writer.write(self.protocol.end_stdin())
        await self._writer.drain()

    async def receive(self) -> list[Output] | None:
        """Return what the process wrote next; None once it or the stream has ended.

        Raises OSError, FrameError."""
        if self.protocol.end is not None:
            return None
        data = await self._reader.read(_READ_BYTES)
        if not data:
            return None
        found = self.protocol.receive(data)
        for answer in found:
            if isinstance(answer, Answer):
                self._writer.write(answer.data)
        return [one for one in found if isinstance(one, Output)]

    async def hang_up(self) -> None:
        """Close the connection. Idempotent."""
        await http.hang_up(self._writer)


class PodStream(LocalStream):
    """A process in a pod; its status is 255 if the stream was lost."""

    def __init__(self, running: _Exec) -> None:
        self._running = running
        self._stderr = Lines(keep=50)
        self._why = ""
        self._sock, self._far = stream_pair()
        self._far.setblocking(False)
        self._ended = asyncio.create_task(self._carry())

    def diagnosis(self) -> str:
        """Return the last lines of stderr so far, and the API server's word on the end."""
        return "\n".join(part for part in (self._stderr.text(), self._why) if part)

    async def close(self) -> None:
        """End the stream. The far process sees its stdin end and is not killed."""
        self._sock.close()
        if not self._ended.done():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_FLUSH_S):
                    await asyncio.shield(self._ended)
        await self.cut()

    async def cut(self) -> None:
        """End the stream with its link."""
        if not self._ended.done():
            await self._running.hang_up()
        await self.wait()

    async def _carry(self) -> int:
        up = asyncio.create_task(self._up())
        try:
            await self._down()
        except (OSError, FrameError) as error:
            self._why = printable(str(error))
        finally:
            up.cancel()
            await asyncio.gather(up, return_exceptions=True)
            # The reader sees the end; what it has not read yet stays to be read.
            self._far.close()
            await self._running.hang_up()
        end = self._running.protocol.end
        if end is None:
            self._why = self._why or "the stream was cut"
            return _NO_STATUS
        self._why = end.message
        return _NO_STATUS if end.exit_code is None else end.exit_code

    async def _down(self) -> None:
        loop = asyncio.get_running_loop()
        reads = True
        while (pieces := await self._running.receive()) is not None:
            for piece in pieces:
                if piece.channel == STDERR:
                    self._stderr.feed(piece.data)
                elif reads:
                    try:
                        await loop.sock_sendall(self._far, piece.data)
                    except OSError:
                        reads = False  # nobody reads; the exit status may still come

    async def _up(self) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            while data := await loop.sock_recv(self._far, _READ_BYTES):
                await self._running.send(data)
            await self._running.send_eof()


class PodStreams:
    """Runs commands in the pods of `target`, through `proxy`."""

    def __init__(self, target: KubeTarget, proxy: KubectlProxy, accepted: AcceptedPods) -> None:
        self._target = target
        self._proxy = proxy
        self._streams: set[PodStream] = set()
        self._running: set[_Exec] = set()
        self._accepted = accepted
        #: The default container of pods with several, by pod; "" for one with a single one.
        self._containers: dict[str, str] = {}

    async def run(self, pod: str, words: Sequence[str], *, stdin: bytes) -> Completed:
        """See `base.Link.run`; the caller bounds the time."""
        running = await self._start(pod, words, stdin=bool(stdin))
        self._running.add(running)
        feeding = asyncio.create_task(_feed(running, stdin))
        try:
            out, err = await _collect(running, f"{words[0]} in {pod}")
        except (OSError, FrameError) as error:
            raise self._proxy.lost(printable(str(error))) from error
        finally:
            self._running.discard(running)
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)
            await running.hang_up()
        end = running.protocol.end
        if end is None:
            raise self._proxy.lost("the stream was cut")
        if end.exit_code is None:
            raise self._failed(pod, end.message)
        said_last = f"{end.message}\n".encode() if end.message else b""
        return Completed(end.exit_code, out, err + said_last)

    async def open_stream(self, pod: str, words: Sequence[str]) -> PodStream:
        """See `base.Link.open_stream`."""
        stream = PodStream(await self._start(pod, words, stdin=True))
        self._streams.add(stream)
        stream._ended.add_done_callback(lambda _: self._streams.discard(stream))
        return stream

    async def close(self) -> None:
        """Cut all streams and commands."""
        cuts = [stream.cut() for stream in tuple(self._streams)]
        await asyncio.gather(*cuts, *(one.hang_up() for one in tuple(self._running)))

    async def _start(self, pod: str, words: Sequence[str], *, stdin: bool) -> _Exec:
        try:
            async with asyncio.timeout(self._target.start_timeout_s):
                container = await self._container(pod)
                url = self._target.exec_url(pod, words, stdin=stdin, container=container)
                answer = await http.upgrade(self._proxy.socket, url)
        except TimeoutError as error:
            limit_s = self._target.start_timeout_s
            raise self._proxy.lost(f"no answer within {limit_s:.0f} s") from error
        except (OSError, http.HttpError) as error:
            raise self._proxy.lost(printable(str(error))) from error
        if isinstance(answer, http.Response):
            raise self._refused(pod, answer)
        self._accepted.add(pod)
        return _Exec(answer)

    async def _container(self, pod: str) -> str:
        """Return the container to name; kubectl finds it by itself, the API server does not."""
        if self._target.container is not None:
            return ""
        if pod not in self._containers:
            answer = await self._proxy.request("GET", self._target.pod_url(pod))
            if answer.status != 200:
                return ""  # the exec is refused for the same reason, and says so
            self._containers[pod] = default_container(answer.body)
        return self._containers[pod]

    def _refused(self, pod: str, answer: http.Response) -> ConnectionFailed:
        self._containers.pop(pod, None)  # another pod may have its name now
        what = f"run a command in pod {pod}"
        return self._accepted.refusal(pod, answer.status, said(answer.body), what=what)

    def _failed(self, pod: str, why: str) -> ConnectionFailed:
        return ConnectionFailed(
            f"no command can be run in pod {pod} of {self._target}",
            cause=why,
            transient=True,
            hint=f"does it run? `kubectl get pod {pod}`",
        )


def default_container(body: bytes) -> str:
    """Return the container that `kubectl exec` takes in this pod; "" where there is no choice."""
    try:
        pod = json.loads(body)
        names = [str(one["name"]) for one in pod["spec"]["containers"]]
        marked = (pod["metadata"].get("annotations") or {}).get(_DEFAULT_CONTAINER)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return ""
    if len(names) < 2:
        return ""
    return str(marked) if marked in names else names[0]


async def _feed(running: _Exec, stdin: bytes) -> None:
    # A command need not read its stdin.
    with contextlib.suppress(OSError):
        if stdin:
            await running.send(stdin)
            await running.send_eof()


async def _collect(running: _Exec, what: str) -> tuple[bytes, bytes]:
    out, err = bytearray(), bytearray()
    while (pieces := await running.receive()) is not None:
        for piece in pieces:
            if piece.channel == STDOUT:
                out += piece.data
            else:
                err += piece.data[: MOST_ERROR_BYTES - len(err)]
        if len(out) > MOST_BYTES:
            raise too_much(what)
    return bytes(out), bytes(err)
