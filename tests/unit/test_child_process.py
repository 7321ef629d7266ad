"""Child processes: what they say is bounded."""

from __future__ import annotations

import pytest

from tunnelkit import child_process
from tunnelkit.child_process import run_child
from tunnelkit.errors import ConnectionFailed


async def test_an_endless_answer_is_cut_off_and_its_command_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(child_process, "MOST_BYTES", 1 << 20)
    with pytest.raises(ConnectionFailed, match="ls on login answered with more than 1 MB"):
        await run_child(["sh", "-c", "yes"], timeout_s=30, what="ls on login")


async def test_of_endless_complaints_the_first_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "MOST_ERROR_BYTES", 1000)
    done = await run_child(["sh", "-c", "echo first >&2; head -c 3000000 /dev/zero >&2; echo out"])
    assert (done.stdout, len(done.stderr)) == (b"out\n", 1000)
    assert done.stderr.startswith(b"first\n")
