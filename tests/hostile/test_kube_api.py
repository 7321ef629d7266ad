"""An API server, a kubectl and a pod that attack: what arrives has bounds, and is one safe line."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.support.places import short_dir
from tunnelkit.child_process import stream_pair
from tunnelkit.config.schema import ClusterSettings
from tunnelkit.errors import AllocationError, ConnectionFailed, TunnelkitError
from tunnelkit.lab.kube import wire
from tunnelkit.link.kube import http
from tunnelkit.link.kube.accepted_pods import AcceptedPods
from tunnelkit.link.kube.link import ProxyLink
from tunnelkit.link.kube.target import KubeTarget
from tunnelkit.session.agent.pod_agent import PodAgent, PodFacts

#: A kubectl that only says that it serves; the test serves at its socket.
_KUBECTL = """#!{python}
import os, sys, time
path = next(one for one in sys.argv if one.startswith("--unix-socket=")).partition("=")[2]
os.symlink(os.path.dirname(sys.argv[0]) + "/evil.sock", path)
print("Starting to serve on", path, flush=True)
time.sleep(1000)
"""
_VERSION = b'{"gitVersion": "v1.36.0"}'
_OK = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s"


class Attack:
    """Serves the link's socket: /version as it should be, all else as `answer` has it."""

    def __init__(self, directory: Path) -> None:
        self.answer: Callable[[wire.Request, asyncio.StreamWriter], None] = lambda *_: None
        self.path = directory / "evil.sock"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await wire.read_request(reader)
            if request.path == "/version":
                writer.write(_OK % (len(_VERSION), _VERSION))
            else:
                self.answer(request, writer)
            await writer.drain()
        except (OSError, EOFError):
            pass
        finally:
            writer.close()


@pytest.fixture
async def attacked() -> AsyncIterator[tuple[ProxyLink, Attack]]:
    base = short_dir("k")
    kubectl = base / "kubectl"
    kubectl.write_text(_KUBECTL.format(python=sys.executable))
    kubectl.chmod(0o700)
    (base / "ctl").mkdir(mode=0o700)
    attack = Attack(base)
    server = await asyncio.start_unix_server(attack.serve, str(attack.path), limit=1 << 18)
    link = ProxyLink(KubeTarget("evil", "mine", kubectl=str(kubectl)), base / "ctl")
    await link.open()
    yield link, attack
    await link.close()
    server.close()
    shutil.rmtree(base)


@pytest.mark.parametrize("is_old", [False, True])
async def test_a_kubectl_that_can_not_append_the_servers_path_is_taken_all_the_same(
    is_old: bool,
) -> None:
    """Without it, a gateway such as Rancher's would answer, or the cluster that it runs in."""
    base = short_dir("k")
    kubectl, seen = base / "kubectl", base / "argv"
    refuses = (
        f"import sys\nopen({str(seen)!r}, 'a').write(' '.join(sys.argv) + '\\n')\n"
        f"if {is_old} and '--append-server-path' in sys.argv:\n"
        "    sys.exit('Error: unknown flag: --append-server-path\\nSee kubectl proxy --help')\n"
    )
    first, rest = _KUBECTL.format(python=sys.executable).split("\n", 1)
    kubectl.write_text(f"{first}\n{refuses}{rest}")
    kubectl.chmod(0o700)
    (base / "ctl").mkdir(mode=0o700)
    server = await asyncio.start_unix_server(Attack(base).serve, str(base / "evil.sock"))
    link = ProxyLink(KubeTarget("old", "mine", kubectl=str(kubectl)), base / "ctl")
    try:
        await link.open()
        appends = ["--append-server-path" in line for line in seen.read_text().splitlines()]
        assert appends == ([True, False] if is_old else [True])
    finally:
        await link.close()
        server.close()
        shutil.rmtree(base)


def _raw(data: bytes) -> Callable[[wire.Request, asyncio.StreamWriter], None]:
    return lambda request, writer: writer.write(data)


def _upgraded(*sent: bytes) -> Callable[[wire.Request, asyncio.StreamWriter], None]:
    def answer(request: wire.Request, writer: asyncio.StreamWriter) -> None:
        wire.switch(writer, request)
        for data in sent:
            writer.write(data)

    return answer


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100_000,
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffff\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort",
        b"\x1b]0;owned\x07 not HTTP\r\n\r\n",
        b"",
    ],
)
async def test_answers_that_are_none(attacked: tuple[ProxyLink, Attack], data: bytes) -> None:
    link, attack = attacked
    attack.answer = _raw(data)
    for ask in (link.request("GET", "/x"), link.run(["true"], node="p")):
        with pytest.raises(ConnectionFailed) as caught:
            async with asyncio.timeout(10):
                await ask
        _is_safe(caught.value)


async def test_a_refusal_with_the_codes_of_a_terminal(attacked: tuple[ProxyLink, Attack]) -> None:
    link, attack = attacked
    status = {"kind": "Status", "message": "\x1b[2J\x1b]52;c;x\x07no\nroom " + "x" * 100_000}
    body = json.dumps(status).encode()
    attack.answer = _raw(b"HTTP/1.1 403 No\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    with pytest.raises(ConnectionFailed) as caught:
        await link.open_stream(["cat"], node="p")
    _is_safe(caught.value)


@pytest.mark.parametrize(
    "sent",
    [
        [b"\x82\x7f" + (1 << 40).to_bytes(8, "big")],
        [b"\x82\xff" + (1 << 63).to_bytes(8, "big")],
        [wire.frame(b"\3" + b"[" * 60_000)],
        [wire.frame(b"\3" + json.dumps({"message": "\x1b[31mred\n" * 900}).encode())],
        [wire.frame(b"x" * 200, 9)],
        [wire.frame(b"\2\x1b[2J" + b"e" * 40_000)] * 80,
        [],
    ],
)
async def test_streams_of_nonsense_end(
    attacked: tuple[ProxyLink, Attack], sent: list[bytes]
) -> None:
    link, attack = attacked
    attack.answer = _upgraded(*sent)
    async with asyncio.timeout(20):
        stream = await link.open_stream(["cat"], node="p")
        assert await stream.wait() == 255
    assert len(stream.diagnosis()) < 1 << 18
    await stream.close()


async def test_a_request_without_an_answer_has_a_limit(
    attacked: tuple[ProxyLink, Attack], monkeypatch: pytest.MonkeyPatch
) -> None:
    link, _ = attacked
    silent = asyncio.Event()

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await silent.wait()
        writer.close()

    server = await asyncio.start_unix_server(wait, str(link._directory / "x"))
    monkeypatch.setattr(link.proxy._current, "socket", link._directory / "x")
    object.__setattr__(link.target, "start_timeout_s", 0.2)
    with pytest.raises(ConnectionFailed, match="is lost") as caught:
        await link.open_stream(["cat"], node="p")
    assert caught.value.transient
    silent.set()
    server.close()


async def test_an_answer_too_large_for_memory(
    attacked: tuple[ProxyLink, Attack], monkeypatch: pytest.MonkeyPatch
) -> None:
    link, attack = attacked
    monkeypatch.setattr(http, "MOST_BODY_BYTES", 1 << 20)
    attack.answer = _raw(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (3 << 20))
    with pytest.raises(ConnectionFailed, match="lost") as caught:
        await link.request("GET", "/x")
    assert "too large" in str(caught.value.cause)


class _Said:
    """A stream on which a pod says something, and ends."""

    def __init__(self, said: bytes, code: int, stderr: str) -> None:
        self._ours, theirs = stream_pair()
        theirs.setblocking(True)
        theirs.sendall(said)
        theirs.close()
        self._code, self._stderr = code, stderr

    def fileno(self) -> int:
        return self._ours.fileno()

    async def wait(self) -> int:
        return self._code

    def diagnosis(self) -> str:
        return self._stderr

    async def close(self) -> None:
        self._ours.close()


@pytest.mark.parametrize(
    ("said", "code", "stderr", "words"),
    [
        (b'{"error": "no place", "reasons": ["/tmp: \\u001b[2J"]}\n', 73, "", "emptyDir"),
        (b"\x1b]0;owned\x07 hello\n", 0, "", "is not tk's script"),
        (b'{"base": "relative", "home": "/h", "python": "/p"}\n', 0, "", "is not tk's script"),
        (b'{"base": "/b\\u001b[2J", "home": "/h", "python": "/p"}\n', 0, "", "not tk's script"),
        (b"[" * 16_000 + b"\n", 0, "", "is not tk's script"),
        (b"x" * 16_000, 0, "", "can't start the agent"),
        (b"", 127, "tk: no Python 3.8 or newer in this pod", "no Python 3.8"),
        (b"", 255, "\x1b[2JError from server (Forbidden): no", "you don't have the right"),
    ],
)
async def test_what_a_pod_answers_is_not_believed(
    said: bytes, code: int, stderr: str, words: str
) -> None:
    class Link:
        accepted = AcceptedPods("here")

        async def open_stream(self, argv: list[str], *, node: str | None = None) -> _Said:
            assert node == "p" and sum(map(len, argv)) < 4000, "it goes into a URL"
            return _Said(said, code, stderr)

    learned: list[PodFacts] = []
    agent = PodAgent(Link(), ClusterSettings(), "a", "p", learned.append)  # type: ignore[arg-type]
    with pytest.raises((AllocationError, ConnectionFailed)) as caught:
        await agent.open()
    _is_safe(caught.value)
    assert words in caught.value.one_line() and not learned


def _is_safe(error: TunnelkitError) -> None:
    line = error.one_line()
    assert line.isprintable() and len(line) < 2000 and error.hint


def test_the_proxy_passes_on_no_more_than_tk_needs() -> None:
    import re

    argv = KubeTarget("c", "mine").proxy_argv("/s")
    accepted = next(one for one in argv if one.startswith("--accept-paths="))
    rules = [re.compile(one) for one in accepted.partition("=")[2].split(",")]

    def passes(path: str) -> bool:
        return any(rule.search(path) for rule in rules)

    assert passes("/api/v1/namespaces/mine/pods/p/exec") and passes("/version")
    for path in ("secrets", "secrets/x", "serviceaccounts/x/token", "podsx", "configmaps"):
        assert not passes(f"/api/v1/namespaces/mine/{path}")
    assert passes("/apis/batch/v1/namespaces/mine/jobs/llama")
    for path in ("jobs/llama/status", "cronjobs", "jobs/", "rolebindings"):
        assert not passes(f"/apis/batch/v1/namespaces/mine/{path}")
    for api in ("batch/v1/namespaces/yours", "batch/v1", "a/b/v1/namespaces/mine"):
        assert not passes(f"/apis/{api}/jobs")
    assert not passes("/api/v1/namespaces/yours/pods")
    assert not passes("/apis/rbac.authorization.k8s.io/v1/clusterroles")
