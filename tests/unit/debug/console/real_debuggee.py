"""A real debuggee of debugpy behind a small session, for one console. Blocking; no adapter."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

import debugpy

from tunnelkit.debug.console.console import Console
from tunnelkit.debug.console.line_results import LineResult, Step
from tunnelkit.debug.dap.messages import Message, dump, parse, section, text, whole
from tunnelkit.debug.ranks.console_messages import RosterMessage
from tunnelkit.mux.dap_framing import DapReader, frame

_PYDEVD = Path(debugpy.__file__).parent / "_vendored" / "pydevd" / "pydevd.py"
_PATIENCE_S = 20.0


class RealDebuggee:
    """The program, stopped at its first breakpoint(). Close it."""

    def __init__(self, program: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = str(server.getsockname()[1])
            arguments = ["--client", "127.0.0.1", "--port", port, "--json-dap-http"]
            self.process = subprocess.Popen(
                [sys.executable, str(_PYDEVD), *arguments, "--file", str(program)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            server.settimeout(_PATIENCE_S)
            self.socket, _ = server.accept()
        self.socket.settimeout(_PATIENCE_S)
        self._frames = DapReader()
        self._messages: list[Message] = []
        self._seq = 0
        self._asked: dict[int, int] = {}
        self.shown: list[str] = []
        self.done: list[LineResult] = []
        self.console = Console(local_source=_read)
        for command, arguments_ in (
            ("pydevdAuthorize", {"debugServerAccessToken": None}),
            ("initialize", {"adapterID": "test", "pathFormat": "path"}),
            ("attach", {"justMyCode": True}),
            ("configurationDone", {}),
        ):
            self._send(command, {**arguments_})
        stop = self._until("stopped")
        self._take(self.console.message(self._roster(section(stop, "body")), time.monotonic()))

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.socket.close()

    def type(self, line: str) -> str:
        """Type a line; return what is shown until it is answered."""
        self.shown = []
        self._take(self.console.line(line, time.monotonic()))
        end = time.monotonic() + _PATIENCE_S
        while self.console.busy:
            assert time.monotonic() < end, f"no answer to {line}"
            self._pass_on(self._next())
        return "\n".join(self.shown)

    def until_news(self) -> list[str]:
        """Return the next lines that nobody has asked for."""
        self.shown = []
        while not self.shown:
            due_s = self.console.due_s
            left_s = _PATIENCE_S if due_s is None else due_s - time.monotonic()
            self.socket.settimeout(max(left_s, 0.001))
            try:
                self._pass_on(self._next())
            except TimeoutError:
                assert due_s is not None
                self._take(self.console.tick(time.monotonic()))
        self.socket.settimeout(_PATIENCE_S)
        return self.shown

    def pass_one(self) -> None:
        """Pass on the next message."""
        self._pass_on(self._next())

    # -- the session's part ---------------------------------------------------------

    def _take(self, step: Step) -> None:
        self.shown += step.show
        self.done += step.done
        for message in step.send:
            assert message["type"] == "ask"
            for ask in message["asks"]:
                self._send(ask["command"], ask["arguments"])
                self._asked[self._seq] = ask["id"]

    def _pass_on(self, message: Message) -> None:
        body, now_s = section(message, "body"), time.monotonic()
        if message.get("type") == "event":
            event = text(message.get("event"))
            step = self.console.message(
                {"type": "event", "rank": 0, "event": event, "body": body}, now_s
            )
        else:
            number = self._asked.pop(whole(message.get("request_seq")) or 0, 0)
            step = self.console.message(
                {
                    "type": "answer",
                    "id": number,
                    "rank": 0,
                    "success": message.get("success") is True,
                    "message": text(message.get("message")),
                    "body": body,
                },
                now_s,
            )
        self._take(step)

    def _send(self, command: str, arguments: Message) -> None:
        self._seq += 1
        request = {
            "seq": self._seq,
            "type": "request",
            "command": command,
            "arguments": arguments,
        }
        self.socket.sendall(frame(dump(request)))

    def _next(self) -> Message:
        while not self._messages:
            data = self.socket.recv(65536)
            assert data, "the debuggee has hung up"
            self._messages += [parse(body) for body in self._frames.feed(data)]
        return self._messages.pop(0)

    def _until(self, event: str) -> Message:
        while (message := self._next()).get("event") != event:
            pass
        return message

    @staticmethod
    def _roster(stop: Message) -> RosterMessage:
        return {
            "type": "roster",
            "loop": 1,
            "command": "train.py",
            "generation": 1,
            "world_size": 1,
            "expected": 1,
            "absent": [],
            "ranked": True,
            "ranks": [
                {"rank": 0, "node": "n0", "local": 0, "pid": 1, "state": "stopped", "stops": [stop]}
            ],
        }


def _read(path: str) -> list[str] | None:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return None
