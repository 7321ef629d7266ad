"""The agent in a pod: one exec finds a place, brings the agent's zip, starts it and attaches."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tunnelkit import agent_zip
from tunnelkit.config.schema import ClusterSettings
from tunnelkit.errors import AllocationError, ConnectionFailed
from tunnelkit.link.base import ByteStream
from tunnelkit.link.kube.api_error import kubectl_said
from tunnelkit.link.kube.link import KubeLink
from tunnelkit.link.kube.printable import printable
from tunnelkit.model import Completed
from tunnelkit.mux.fd_io import read_fd, write_fd
from tunnelkit.pod import script as pod_script
from tunnelkit.session.agent.client import NO_AGENT, AgentGone
from tunnelkit.session.agent.install import Installed

_ANSWER_BYTES = 1 << 14
_ANSWER_S = 30.0
#: A pod of tk's own starts its agent once the zip has come.
_SERVES_S = 20.0
#: Nobody came to a pod of tk's own: it ends, so that it holds no GPU.
_COMES_S = 600.0
#: An agent that was asked to end is gone within this time.
_ENDS_S = 5.0
_NOT_FOUND = 127
#: `exec: "sh": executable file not found in $PATH`; CRI-O's crun quotes by backticks, and runc by
#: what its log escapes.
_NO_SHELL = re.compile(r"(?=.*executable file)(?=.*not found in \$PATH).*[\"`']sh\\?[\"`']", re.S)
_DEFAULT_DIRECTORY = "~/.cache/tunnelkit"
#: Images have Python under these names; the setting's comes first.
_PYTHONS = (
    "python3",
    "python",
    "/opt/conda/bin/python",
    "/usr/bin/python3",
    "/usr/local/bin/python3",
)
#: $1 how many of the next words are Pythons, then these, then the words for Python.
#: The target of a symlink names the version mostly, so no Python need be started to ask for it.
_FIND = r"""
count=$1 found=; shift
while [ "$count" -gt 0 ]; do
  one=$1 count=$((count - 1)); shift
  [ -z "$found" ] && path=$(command -v "$one") || continue
  case $(readlink -f "$path" 2>/dev/null) in
    */python3.[89] | */python3.[1-9][0-9]) found=$path ;;
    *) "$path" -I -S -c 'import sys; sys.exit(sys.version_info < (3, 8))' </dev/null 2>/dev/null &&
      found=$path ;;
  esac
done
[ -n "$found" ] || { echo "tk: no Python 3.8 or newer in this pod" >&2; exit 127; }
exec "$found" -I -S "$@"
"""
#: That last line of the script's own, in part.
_OUR_WORDS = "tk: no Python"
#: Runs the script that comes first on stdin; its length is the first word.
_STUB = (
    "import os,sys\nn=int(sys.argv[1]);b=b''\nwhile len(b)<n:\n c=os.read(0,n-len(b))\n"
    " c or sys.exit(66)\n b+=c\nexec(compile(b,'tk-pod','exec'))"
)


@cache
def script() -> bytes:
    """Return the script that runs in the pod."""
    return Path(pod_script.__file__).read_bytes()


@dataclass(frozen=True)
class PodFacts:
    """The findings of the first exec in a pod.

    installed: the agent's files. ran: an agent of that name was there already. gives: variables
    that the pod lacked and tk has set. need: the zip must be sent."""

    installed: Installed
    ran: bool
    gives: tuple[str, ...]
    need: bool


@dataclass(frozen=True)
class PodAgent:
    """The agent `name` in one pod. starts: returns True if one that is not there must be started.

    is_main: the agent is the pod's main process, and starts by itself.
    learn: called with what was found, each time."""

    link: KubeLink
    cluster: ClusterSettings
    name: str
    pod: str
    learn: Callable[[PodFacts], None]
    starts: Callable[[], bool] = lambda: False
    is_main: bool = False

    async def open(self) -> ByteStream:
        """Open a stream to the agent. Raises AllocationError, AgentGone, ConnectionFailed."""
        order = {**self._order("boot"), "start": self.starts() and not self.is_main}
        if not self.is_main:
            order["wait_s"] = 0  # nothing but that start brings one
        try:
            return await self._open(order, _finder(self.cluster))
        except _NoShell:
            return await self._open(order, _plain_python(self.cluster))

    async def clean(self) -> None:
        """Remove what tk has put into its directory; mirrored files stay."""
        order = json.dumps({**self._order("clean"), "wait_s": _ENDS_S})
        words = ["-c", _STUB, str(len(script())), order]
        done = await run_python(self.link, self.cluster, self.pod, words, stdin=script())
        if done.exit_code != 0:
            raise AllocationError(
                f"not all of tk's files in pod {self.pod} could be removed",
                cause=printable(done.error_text),
                hint="they are in a directory tunnelkit-UID, in /tmp mostly",
            )

    def _order(self, what: str) -> dict[str, object]:
        return order_for(what, self.name, self.cluster, node=self.pod)

    async def _open(self, order: Mapping[str, object], python: list[str]) -> ByteStream:
        words = [*python, "-c", _STUB, str(len(script())), json.dumps(order)]
        stream = await self.link.open_stream(words, node=self.pod)
        try:
            async with asyncio.timeout(_ANSWER_S):
                # At once, without a round trip to wait for. One that has ended may have answered.
                with contextlib.suppress(OSError):
                    await write_fd(stream.fileno(), script())
                line = await _read_line(stream)
                if not line.endswith(b"\n"):
                    raise await self._refusal(stream)
                self.link.accepted.add(self.pod)
                facts = self._facts(line)
                self.learn(facts)
                if facts.need:
                    await self._send(stream, agent_zip.build().data)
            return stream
        except TimeoutError as error:
            await stream.close()
            raise ConnectionFailed(
                f"pod {self.pod} does not answer",
                cause=f"no answer within {_ANSWER_S:.0f} s",
                transient=True,
                hint="is it overloaded? `tk logs --session` shows more",
            ) from error
        except BaseException:
            await stream.close()
            raise

    async def _send(self, stream: ByteStream, data: bytes) -> None:
        try:
            await write_fd(stream.fileno(), data)
        except OSError as error:
            raise await self._refusal(stream) from error

    async def _refusal(self, stream: ByteStream) -> Exception:
        """Return the error for a script that ended without an answer."""
        code, said = await stream.wait(), printable(stream.diagnosis())
        if _OUR_WORDS not in said and _has_no_shell(code, said):
            return _NoShell()
        if code in (126, _NOT_FOUND):
            return AllocationError(
                f"no Python 3.8 or newer in pod {self.pod}",
                cause=None if _OUR_WORDS in said else said,
                hint="use an image that has one, or set [cluster] python to its path",
            )
        if code == NO_AGENT:
            return AgentGone(f"there is no agent in pod {self.pod} any more", cause=said or None)
        status, text = kubectl_said(stream.diagnosis())
        what = f"start the agent in pod {self.pod}"
        return self.link.accepted.refusal(self.pod, status, text, what=what)

    def _facts(self, line: bytes) -> PodFacts:
        """Read the script's answer; a pod is not believed. Raises AllocationError."""
        try:
            report = json.loads(line)
        except (ValueError, RecursionError):
            report = None
        if not isinstance(report, dict):
            raise AllocationError(
                f"what answers in pod {self.pod} is not tk's script",
                cause=printable(line.decode("utf-8", "replace"), 200),
                hint="does [cluster] prologue or the image's sh print something?",
            )
        if "error" in report:
            reasons = report.get("reasons")
            tried = [str(one) for one in reasons[:12]] if isinstance(reasons, list) else []
            raise no_place(self.pod, printable("; ".join(tried)))
        base, home, python = (_path(report, key) for key in ("base", "home", "python"))
        if not (base and home and python):
            raise AllocationError(
                f"what answers in pod {self.pod} is not tk's script",
                cause=printable(line.decode("utf-8", "replace"), 200),
                hint="`tk doctor` checks the pod",
            )
        package, gives = agent_zip.build(), report.get("gives")
        return PodFacts(
            Installed(home, base, f"{base}/{package.file_name}", python),
            ran=report.get("runs") is True,
            gives=tuple(printable(str(one), 20) for one in gives[:5])
            if isinstance(gives, list)
            else (),
            need=report.get("have") is not True,
        )


def _has_no_shell(code: int, said: str) -> bool:
    """True if the pod's runtime found no `sh`: containerd ends with 127, CRI-O with 255."""
    return code in (1, 126, _NOT_FOUND, 255) and _NO_SHELL.search(said) is not None


class _NoShell(Exception):
    """The image has no sh."""


def no_place(pod: str, tried: str) -> AllocationError:
    """Return the error for a pod in which nothing can be written, with the way out."""
    return AllocationError(
        f"pod {pod} has no place that tk could write to",
        cause=tried or None,
        hint="give its container an emptyDir volume; `tk help kubernetes` has the lines",
    )


def order_for(
    what: str, name: str, cluster: ClusterSettings, *, node: str = ""
) -> dict[str, object]:
    """Return an order for the script."""
    package = agent_zip.build()
    own = cluster.directory if cluster.directory != _DEFAULT_DIRECTORY else ""
    return {
        "do": what,
        "name": name,
        "file": package.file_name,
        "size": len(package.data),
        "digest": package.digest,
        "directory": own,
        "wait_s": _COMES_S if what == "hold" else _SERVES_S,
        "node": node,
    }


def hold_argv(name: str, cluster: ClusterSettings) -> list[str]:
    """Return the argv of the main process of a pod of tk's own, which becomes the agent."""
    order = json.dumps(order_for("hold", name, cluster))
    return [*_finder(cluster), "-c", script().decode(), order]


async def run_python(
    link: KubeLink, cluster: ClusterSettings, pod: str, words: Sequence[str], *, stdin: bytes = b""
) -> Completed:
    """Run the pod's Python with these words. Raises AllocationError, ConnectionFailed."""
    done = await link.run([*_finder(cluster), *words], node=pod, stdin=stdin)
    if not _has_no_shell(done.exit_code, done.error_text):
        return done
    return await link.run([*_plain_python(cluster), *words], node=pod, stdin=stdin)


def _pythons(cluster: ClusterSettings) -> list[str]:
    if cluster.python != _PYTHONS[0]:
        return [cluster.python]
    return list(_PYTHONS)


def _finder(cluster: ClusterSettings) -> list[str]:
    """Return the argv that runs Python by sh; Python's words follow."""
    # The prologue's output must not get into the agent's stream.
    before = f"{{ {cluster.prologue}\n}} >&2\n" if cluster.prologue else ""
    found = _pythons(cluster)
    return ["sh", "-c", before + _FIND, "sh", str(len(found)), *found]


def _plain_python(cluster: ClusterSettings) -> list[str]:
    """Return the argv that runs Python in an image without a shell; Python's words follow."""
    if cluster.prologue:
        raise AllocationError(
            "[cluster] prologue needs a shell, and the image has none",
            hint="leave it out for this pod",
        )
    return [cluster.python, "-I", "-S"]


async def _read_line(stream: ByteStream) -> bytes:
    """Read up to the first newline and no further: what follows is the agent's."""
    line = bytearray()
    while not line.endswith(b"\n") and len(line) < _ANSWER_BYTES:
        try:
            data = await read_fd(stream.fileno(), 1)
        except OSError:
            break
        if not data:
            break
        line += data
    return bytes(line)


def _path(report: Mapping[str, object], key: str) -> str:
    text = report.get(key)
    if isinstance(text, str) and text.startswith("/") and text.isprintable() and len(text) < 1024:
        return text
    return ""
