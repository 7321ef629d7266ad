"""Messages of the control socket: what is accepted, and what is refused in plain words."""

from __future__ import annotations

import json

import pytest

from tunnelkit.errors import TunnelkitError
from tunnelkit.session.runtime import control_calls as calls
from tunnelkit.session.runtime.control_message import Message, Request

EXAMPLES: list[Message] = [
    calls.Status(),
    calls.Down(keep=True),
    calls.Sync(timeout_s=1, proof=True),
    calls.SyncResolve(files=["/a", "/b"], theirs=True),
    calls.Mount(mountpoint="/m"),
    calls.Attach(target=None, port=1),
    calls.ExecStream(argv=[], env={"TERM": "xterm"}, pty={"rows": 2, "cols": 3}),
    calls.LoopStream(words=["python", "2.py"], only=[0, 2], preload=[]),
    calls.LoopAdopt(adopt=3),
]


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda one: type(one).__name__)
def test_a_message_arrives_as_it_was_sent(message: Message) -> None:
    sent = json.loads(json.dumps(message.to_json()))
    assert type(message).parse(sent).to_json() == message.to_json()


def test_absent_fields_have_their_defaults_and_unknown_ones_are_left_out() -> None:
    got = calls.Sync.parse({"proof": True, "of-another-version": 1})
    assert (got.proof, got.allow_deletes, got.timeout_s) == (True, False, calls.SYNC_TIMEOUT_S)
    assert got.to_json() == {"proof": True}


@pytest.mark.parametrize(
    ("kind", "data", "why"),
    [
        (calls.Sync, {"timeout_s": "1"}, "'timeout_s' has a value of the wrong type"),
        (calls.Sync, {"timeout_s": True}, "'timeout_s'"),
        (calls.Sync, {"proof": 1}, "'proof'"),
        (calls.SyncExplain, {}, "'path' is missing"),
        (calls.SyncResolve, {"files": ["a", 1]}, "'files'"),
        (calls.ExecStream, {"argv": "ls"}, "'argv'"),
        (calls.ExecStream, {"argv": [], "env": {"A": 1}}, "'env'"),
        (calls.Attach, {"target": 1.5}, "'target'"),
    ],
)
def test_wrong_fields_are_refused(kind: type[Message], data: dict[str, object], why: str) -> None:
    with pytest.raises(TunnelkitError, match="can't be read") as caught:
        kind.parse(data)
    assert why in (caught.value.cause or "")


def test_each_call_has_a_name_of_its_own() -> None:
    names = [one.NAME for one in Request.__subclasses__()]
    assert len(names) > 20 and len(set(names)) == len(names)
