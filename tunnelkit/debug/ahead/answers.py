"""Answers that are there, or on their way, before the question."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from tunnelkit.debug.dap.messages import Message, dump

_MOST = 128
#: Of those that are there: an agent sends half of it at most (mux/dap_ahead.py).
_MOST_BYTES = 256 * 1024


@dataclass
class _Expected:
    command: str
    arguments: str
    answer: Message | None = None
    size_bytes: int = 0


class Answers:
    """Each is given once, to the same request as the one that it answers."""

    def __init__(self) -> None:
        self._expected: dict[int, _Expected] = {}
        #: The client's requests that wait for an answer under way, by its number.
        self._awaited: dict[int, int] = {}

    def expect(self, number: int, command: str, arguments: Mapping[str, object]) -> None:
        """Note that request `number` has been sent to the debuggee."""
        if len(self._expected) < _MOST:
            self._expected[number] = _Expected(command, _canonical(arguments))

    def claim(
        self, seq: int, command: str, arguments: Mapping[str, object]
    ) -> tuple[int, bytes | None] | None:
        """Take the answer to a client's request `seq`: the number of it, and its body.

        The body is None if it is under way: `arrived` returns it. None: there is no such answer.
        """
        wanted = _canonical(arguments)
        for number, one in self._expected.items():
            if one.command == command and one.arguments == wanted:
                del self._expected[number]
                if one.answer is None:
                    self._awaited[number] = seq
                    return number, None
                return number, _as_answer_to(seq, one.answer)
        return None

    def arrived(self, number: int, answer: Message, size_bytes: int) -> tuple[int, bytes] | None:
        """Take an answer; return the client's request that waits for it, and its body."""
        seq = self._awaited.pop(number, None)
        if seq is not None:
            return seq, _as_answer_to(seq, answer)
        if number in self._expected:
            held = sum(one.size_bytes for one in self._expected.values())
            if held + size_bytes > _MOST_BYTES:
                del self._expected[number]
            else:
                self._expected[number].answer = answer
                self._expected[number].size_bytes = size_bytes
        return None

    def request_of(self, number: int) -> tuple[str, Message] | None:
        """Return command and arguments of a request whose answer nobody has claimed."""
        one = self._expected.get(number)
        return None if one is None else (one.command, json.loads(one.arguments))

    def drop(self, command: str = "") -> None:
        """Drop what nobody has claimed. command: only answers to it that are there."""
        self._expected = {
            number: one
            for number, one in self._expected.items()
            if command and (one.command != command or one.answer is None)
        }

    def delivered(self, seq: int) -> None:
        """A client's request was answered in another way."""
        self._awaited = {number: one for number, one in self._awaited.items() if one != seq}


def _canonical(arguments: Mapping[str, object]) -> str:
    return json.dumps(arguments, sort_keys=True)


def _as_answer_to(seq: int, answer: Message) -> bytes:
    return dump({**answer, "request_seq": seq})
