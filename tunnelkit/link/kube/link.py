"""The link to the pods of one namespace; see `base.Link`. A node is a pod.

There is no login host: every command names a pod. What a scheduler would be asked is a `request`
to the API server.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tunnelkit.child_process import run_child
from tunnelkit.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    TimeoutExpired,
    TunnelkitError,
    UsageError,
)
from tunnelkit.link.base import ByteStream, Link
from tunnelkit.link.kube import pod_shell
from tunnelkit.link.kube.accepted_pods import AcceptedPods
from tunnelkit.link.kube.api_error import kubectl_said, refusal, said
from tunnelkit.link.kube.http import Response
from tunnelkit.link.kube.http_proxy import has_proxy, may_have_proxy
from tunnelkit.link.kube.kubectl_streams import KubectlStreams
from tunnelkit.link.kube.pod_streams import PodStreams
from tunnelkit.link.kube.proxy import KubectlProxy
from tunnelkit.link.kube.target import KubeTarget, check_pod
from tunnelkit.link.shared.socket_dir import private_directory
from tunnelkit.model import Completed, LocalForward

_ANSWER_S = 30.0
#: The first minor version of Kubernetes whose exec by WebSocket has an end of stdin.
FIRST_MINOR = 30
#: kubectl's word for each method, with `--raw`.
_RAW_WORDS = {"GET": "get", "POST": "create", "DELETE": "delete"}


class _Streams(Protocol):
    """The way on which commands run in pods."""

    async def run(self, pod: str, words: Sequence[str], *, stdin: bytes) -> Completed:
        """Run a command to its end."""
        ...

    async def open_stream(self, pod: str, words: Sequence[str]) -> ByteStream:
        """Start a command."""
        ...

    async def close(self) -> None:
        """Cut all."""
        ...


class KubeLink(Link):
    """A link to pods. Its subclasses differ in how they reach the API server.

    directory: a 0700 directory that belongs to this link alone. accepted: the pods where commands
    were accepted; who opens a stream, and hears from it, adds its pod."""

    _streams: _Streams

    def __init__(self, target: KubeTarget, directory: Path) -> None:
        self.target = target
        self.accepted = AcceptedPods(str(target))
        self._directory = directory.absolute()
        self._opening = asyncio.Lock()

    @property
    def name(self) -> str:
        """The context and the namespace."""
        return str(self.target)

    @property
    def _is_open(self) -> bool:
        raise NotImplementedError

    async def doubt(self) -> None:
        """See `base.Link.doubt`; kubectl and tk's own pings notice a loss soon enough."""

    async def request(self, method: str, path: str, body: bytes = b"") -> Response:
        """Send a request (GET, POST or DELETE) to the API server; a refusal is an answer, too.

        Raises ConnectionFailed without an answer."""
        raise NotImplementedError

    async def open_node(self, node: str) -> None:
        """There is nothing to connect to: each stream is a request of its own."""
        check_pod(node)

    async def run(
        self,
        argv: Sequence[str],
        *,
        node: str | None = None,
        stdin: bytes = b"",
        timeout_s: float = 30.0,
    ) -> Completed:
        """See `base.Link.run`."""
        pod = self._ready(argv, node)
        try:
            async with asyncio.timeout(timeout_s):
                return await self._streams.run(pod, argv, stdin=stdin)
        except TimeoutError as error:
            raise TimeoutExpired(
                f"`{argv[0]}` in pod {pod} of {self.name} took more than {timeout_s:g} s",
                hint="is the pod overloaded? `tk doctor` measures the way there",
                transient=True,
            ) from error

    async def open_stream(self, argv: Sequence[str], *, node: str | None = None) -> ByteStream:
        """See `base.Link.open_stream`."""
        return await self._streams.open_stream(self._ready(argv, node), argv)

    async def forward(self, forward: LocalForward, *, node: str | None = None) -> None:
        """Refused: the wire to the agent carries forwards."""
        raise UsageError("a link to pods carries no forwards", hint="the agent's wire does")

    async def cancel_forward(self, forward: LocalForward, *, node: str | None = None) -> None:
        """There is none."""

    def forward_route(self, forward: LocalForward, *, node: str | None = None) -> str | None:
        """There is none."""
        return None

    def failed_forwards(self) -> dict[tuple[LocalForward, str | None], TunnelkitError]:
        """There is none."""
        return {}

    def remote_shell(self, *, node: str | None = None) -> list[str]:
        """See `base.Link.remote_shell`: a small program that becomes `kubectl exec`."""
        words = self.target.exec_words()
        return [sys.executable, "-I", "-S", pod_shell.__file__, str(len(words)), *words]

    def destination(self, node: str | None = None) -> str:
        """See `base.Link.destination`: the pod."""
        return node or self.name

    def _ready(self, argv: Sequence[str], node: str | None) -> str:
        if not argv:
            raise UsageError("there is no command to run", hint="name one")
        if node is None:
            raise UsageError(f"there is no login host in {self.name}", hint="name a pod")
        pod = check_pod(node)
        if not self._is_open:
            raise ConnectionFailed(
                f"not connected to {self.name}",
                hint="wait for the reconnect, or `tk up`",
                transient=True,
            )
        return pod


class ProxyLink(KubeLink):
    """The first way: one `kubectl proxy` carries all.

    may_exec: streams go by `kubectl exec` where that proxy can open none."""

    def __init__(self, target: KubeTarget, directory: Path, *, may_exec: bool = False) -> None:
        super().__init__(target, directory)
        self.proxy = KubectlProxy(target, self._directory)
        self._streams = PodStreams(target, self.proxy, self.accepted)
        self._may_exec = may_exec

    @property
    def by_websocket(self) -> bool:
        """True if streams are opened through the proxy, which takes `get` on pods/exec."""
        return isinstance(self._streams, PodStreams)

    @property
    def _is_open(self) -> bool:
        return self.proxy.is_up

    async def open(self) -> None:
        """See `base.Link.open`. The proxy of a killed predecessor is replaced."""
        private_directory(self._directory, longest=self.proxy.longest, owner="tk")
        async with self._opening:
            await self.proxy.open()
            if self._may_exec and await self._needs_exec():
                self._streams = KubectlStreams(self.target, self.accepted)
            self._may_exec = False  # it is decided

    async def _needs_exec(self) -> bool:
        """Return True if `kubectl proxy` can open no stream to this API server."""
        if self.proxy.minor and self.proxy.minor < FIRST_MINOR:
            return True
        files = os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
        texts = await asyncio.to_thread(lambda: [_text_of(one) for one in files.split(os.pathsep)])
        if not may_have_proxy("".join(texts), os.environ):
            return False
        argv = self.target.argv("config", "view", "--minify", "-o", "json")
        try:
            done = await run_child(argv, timeout_s=_ANSWER_S)
        except TimeoutError:
            return False
        return has_proxy(done.stdout, os.environ)

    async def is_alive(self) -> bool:
        """See `base.Link.is_alive`. What runs does not end with the login."""
        if not self.proxy.is_up:
            return False
        try:
            answer = await self.request("GET", "/version")
        except ConnectionFailed:
            return False
        if answer.status == 200:
            return True
        # A login plugin that fails is a 500 of kubectl's own.
        why = refusal(answer.status, said(answer.body), what="reach the API", where=self.name)
        return self.proxy.is_login_refused and isinstance(why, AuthenticationFailed)

    async def wait_lost(self) -> str:
        """See `base.Link.wait_lost`."""
        return await self.proxy.wait()

    async def request(self, method: str, path: str, body: bytes = b"") -> Response:
        """See `KubeLink.request`."""
        try:
            async with asyncio.timeout(_ANSWER_S):
                return await self.proxy.request(method, path, body)
        except TimeoutError as error:
            raise self.proxy.lost(f"no answer within {_ANSWER_S:.0f} s") from error

    async def close(self) -> None:
        """See `base.Link.close`."""
        await self._streams.close()
        await self.proxy.close()


def _text_of(file: str) -> str:
    try:
        return Path(file).read_text("utf-8", "replace")
    except OSError:
        return ""


class KubectlExecLink(KubeLink):
    """The second way: a kubectl for each stream and request. Nothing stays connected between."""

    def __init__(self, target: KubeTarget, directory: Path) -> None:
        super().__init__(target, directory)
        self._streams = KubectlStreams(target, self.accepted)
        self._closed: asyncio.Event | None = None

    @property
    def _is_open(self) -> bool:
        return self._closed is not None and not self._closed.is_set()

    async def open(self) -> None:
        """See `base.Link.open`: asks for the server's version."""
        async with self._opening:
            if self._is_open:
                return
            answer = await self.request("GET", "/version")
            if answer.status != 200:
                text = answer.body.decode("utf-8", "replace")
                raise refusal(answer.status, text, what="reach the API", where=self.name)
            self._closed = asyncio.Event()

    async def is_alive(self) -> bool:
        """See `base.Link.is_alive`."""
        if not self._is_open:
            return False
        try:
            return (await self.request("GET", "/version")).status == 200
        except TunnelkitError:
            return False

    async def wait_lost(self) -> str:
        """See `base.Link.wait_lost`. Only `close` ends what is no connection."""
        if self._closed is None:
            return f"there is no connection to {self.name}"
        await self._closed.wait()
        return f"the link to {self.name} was closed"

    async def request(self, method: str, path: str, body: bytes = b"") -> Response:
        """See `KubeLink.request`."""
        words = [_RAW_WORDS[method], "--raw", path, *(["-f", "-"] if body else [])]
        try:
            done = await run_child(
                self.target.argv(*words), stdin=body, timeout_s=_ANSWER_S, what="the API server"
            )
        except TimeoutError as error:
            where = self.name
            raise refusal(0, "no answer in time", what="reach the API", where=where) from error
        if done.exit_code == 0:
            return Response(200, done.stdout)
        status, text = kubectl_said(done.error_text)
        if status == 0:
            raise refusal(0, text, what="reach the API", where=self.name)
        return Response(status, text.encode())

    async def close(self) -> None:
        """See `base.Link.close`."""
        if self._closed is not None:
            self._closed.set()
        await self._streams.close()
