"""WebSocket frames and the exec protocol: cut anywhere, and from a server that lies."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.lab.kube import wire
from tunnelkit.link.kube import frames
from tunnelkit.link.kube.api_error import kubectl_said, refusal, said
from tunnelkit.link.kube.exec_protocol import (
    NOT_FOUND,
    Answer,
    ExecEnd,
    ExecProtocol,
    Output,
    parse_status,
)
from tunnelkit.link.kube.frames import Decoder, FrameError, Message
from tunnelkit.link.kube.kubectl_streams import far_status
from tunnelkit.link.kube.printable import printable

pytestmark = pytest.mark.hypothesis

SIZES = st.sampled_from([0, 1, 125, 126, 127, 65535, 65536, 70000])
CONTROL = st.tuples(
    st.sampled_from([frames.PING, frames.PONG, frames.CLOSE]), st.binary(max_size=9)
)
BLOCKS = st.tuples(st.just(frames.BINARY), SIZES.map(lambda size: b"x" * size))


def cut(data: bytes, places: list[int]) -> list[bytes]:
    at = sorted({place % (len(data) + 1) for place in places})
    return [data[a:b] for a, b in zip([0, *at], [*at, len(data)], strict=True)]


@given(st.lists(BLOCKS | CONTROL, max_size=6), st.lists(st.integers(0, 10**6), max_size=12))
def test_messages_survive_any_cut(sent: list[tuple[int, bytes]], places: list[int]) -> None:
    data = b"".join(wire.frame(body, opcode) for opcode, body in sent)
    decoder, got = Decoder(), list[Message]()
    for piece in cut(data, places):
        got += decoder.feed(piece)
    assert got == [Message(opcode, body) for opcode, body in sent]


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=8), st.binary(max_size=20))
def test_a_split_message_is_joined_around_control_frames(parts: list[bytes], ping: bytes) -> None:
    data = bytearray()
    for at, part in enumerate(parts):
        opcode = frames.CONTINUATION if at else frames.BINARY
        whole = bytearray(wire.frame(part, opcode))
        if at < len(parts) - 1:
            whole[0] &= 0x7F
        data += whole + (wire.frame(ping, frames.PING) if at < len(parts) - 1 else b"")
    got = Decoder().feed(bytes(data))
    assert [one for one in got if one.opcode == frames.PING] == (
        [Message(frames.PING, ping)] * (len(parts) - 1)
    )
    assert got[-1] == Message(frames.BINARY, b"".join(parts))


@given(st.binary(max_size=200))
def test_any_bytes_are_messages_or_an_error(data: bytes) -> None:
    decoder = Decoder(most_bytes=64)
    try:
        for at in range(len(data)):
            for message in decoder.feed(data[at : at + 1]):
                assert len(message.data) <= 125
    except FrameError:
        pass
    assert len(decoder._buffer) <= 200


@pytest.mark.parametrize(
    "data",
    [
        b"\x82\x7f" + (1 << 62).to_bytes(8, "big"),  # too large, before a byte of it has come
        b"\x82\xff" + (1 << 63).to_bytes(8, "big"),
        b"\xc2\x00",  # a reserved bit
        b"\x82\x80\0\0\0\0",  # masked
        b"\x80\x00",  # the end of nothing
        b"\x02\x01a\x02\x01b",  # a message within another one
        b"\x09\x00",  # a ping that is split
        b"\x89\x7e\x00\x80" + b"x" * 128,  # a ping that is too long
        b"\x83\x00",  # an unknown kind
    ],
)
def test_what_is_no_servers_frame_is_refused(data: bytes) -> None:
    with pytest.raises(FrameError):
        Decoder().feed(data)


def test_empty_parts_do_not_pile_up() -> None:
    decoder = Decoder(most_bytes=10)
    decoder.feed(b"\x02\x01a")
    for _ in range(1000):
        assert decoder.feed(b"\x00\x00") == []
    assert len(decoder._parts) == 1
    with pytest.raises(FrameError, match="over 10 bytes"):
        decoder.feed(b"\x00\x0a" + b"x" * 10)


@given(st.binary(max_size=200_000))
def test_stdin_arrives_in_small_messages(data: bytes) -> None:
    sent, at, got = ExecProtocol.stdin(data), 0, b""
    while at < len(sent):
        second = sent[at + 1] & 0x7F
        width = {126: 2, 127: 8}.get(second, 0)
        size = int.from_bytes(sent[at + 2 : at + 2 + width], "big") if width else second
        start = at + 2 + width + 4
        assert sent[at + 1] & 0x80 and sent[start] == 0 and size <= (1 << 16) + 1
        got += sent[start + 1 : start + size]
        at = start + size
    assert got == data


def test_an_exec_from_its_first_byte_to_its_status() -> None:
    protocol = ExecProtocol()
    status = {"status": "Failure", "reason": "NonZeroExitCode"}
    status_of_7 = {**status, "details": {"causes": [{"reason": "ExitCode", "message": "7"}]}}
    data = wire.frame(b"\1") + wire.frame(b"\1out") + wire.frame(b"hi", wire.PING)
    data += wire.frame(b"\2err") + wire.frame(b"\3" + json.dumps(status_of_7).encode())
    assert protocol.receive(data) == [
        Output(1, b"out"),
        Answer(frames.encode(frames.PONG, b"hi")),
        Output(2, b"err"),
    ]
    assert protocol.end == ExecEnd(7)
    protocol.receive(wire.frame(b'\3{"status":"Success"}'))
    assert protocol.end == ExecEnd(7), "the first word counts"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('{"status":"Success"}', 0),
        ("[]", None),
        ("no json", None),
        ("[" * 50_000, None),
        ('{"status":"Failure","reason":"NonZeroExitCode"}', None),
        ('{"reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"300"}]}}',
         None),
        ('{"message":"exec: \\"x\\": executable file not found in $PATH"}', NOT_FOUND),
        ('{"message":"container not found (\\"main\\")"}', None),
    ],
)  # fmt: skip
def test_the_last_word_of_an_exec(text: str, code: int | None) -> None:
    assert parse_status(text.encode()).exit_code == code


@given(st.text(max_size=60).map(lambda text: 12 * text))
def test_words_from_afar_are_one_safe_line(text: str) -> None:
    shown = printable(text)
    assert len(shown) <= 600 and shown.isprintable()
    assert parse_status(json.dumps({"message": text}).encode()).message.isprintable()


@pytest.mark.parametrize(
    ("code", "stderr", "expected"),
    [
        (0, b"warning\n", (0, b"warning\n")),
        (7, b"oops\ncommand terminated with exit code 7\n", (7, b"oops\n")),
        (1, b"halfcommand terminated with exit code 1\n", (1, b"half")),
        (1, b"command terminated with exit code 0\n", (None, None)),
        (1, b"error: lost connection to pod\n", (None, None)),
        (1, b'error: exec: "x": executable file not found in $PATH\n', (127, None)),
    ],
)
def test_kubectls_exit_code_is_not_the_far_one(
    code: int, stderr: bytes, expected: tuple[int | None, bytes | None]
) -> None:
    status, kept = far_status(code, stderr)
    assert (status, kept) == (expected[0], stderr if expected[1] is None else expected[1])


@pytest.mark.parametrize(
    ("stderr", "status", "words"),
    [
        ('Error from server (NotFound): pods "x" not found', 404, 'pods "x" not found'),
        ("Error from server (Forbidden): pods is forbidden", 403, "pods is forbidden"),
        ("error: You must be logged in to the server (Unauthorized)", 401, "logged in"),
        ("error: unable to upgrade connection: Forbidden (user=me)", 403, "Forbidden"),
        ("getting credentials: exec plugin cannot support interactive mode", 401, "interactive"),
        ("dial tcp 127.0.0.1:1: connect: connection refused", 0, "connection refused"),
        (
            'The Job "tk-x-1" is invalid: \n* spec.cpu: Invalid\n* spec.restartPolicy: Required',
            422,
            "spec.cpu: Invalid * spec.restartPolicy: Required",
        ),
        ("The request is invalid: the server rejected it", 422, "the server rejected it"),
        ("", 0, "it said nothing"),
    ],
)
def test_what_kubectl_complains_of(stderr: str, status: int, words: str) -> None:
    found, text = kubectl_said(stderr)
    assert found == status and words in text


@pytest.mark.parametrize(
    ("status", "text", "kind", "is_transient"),
    [
        (401, "Unauthorized", "AuthenticationFailed", False),
        (502, "getting credentials: exec plugin failed", "AuthenticationFailed", False),
        (403, "no", "ConnectionFailed", False),
        (404, "no", "ConnectionFailed", False),
        (502, "connection refused", "ConnectionFailed", True),
        (429, "slow down", "ConnectionFailed", True),
        (0, "no answer", "ConnectionFailed", True),
    ],
)
def test_what_a_refusal_means(status: int, text: str, kind: str, is_transient: bool) -> None:
    error = refusal(status, text, what="do it", where="there")
    assert (type(error).__name__, error.transient) == (kind, is_transient)
    assert error.hint and "\n" not in error.one_line()


def test_the_words_of_an_answer() -> None:
    assert (
        said(b'{"kind":"Status","message":"no \\u001b[31mred"}')
        == "no \N{REPLACEMENT CHARACTER}[31mred"
    )
    assert said(b"plain\ntext") == "plain text"
    assert said(b"[" * 100_000)
