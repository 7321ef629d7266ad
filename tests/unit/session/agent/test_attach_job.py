"""An agent started in a job by a real sh, through a login shell that prints a greeting."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from tunnelkit.errors import HostKeyError, UnknownHostKey
from tunnelkit.link.base import Link
from tunnelkit.model import Completed
from tunnelkit.scheduler.job_script import HolderStatus
from tunnelkit.scheduler.slurm.adapter import Slurm
from tunnelkit.session.agent.attach_job import JobAttachment
from tunnelkit.session.agent.install import Installed


class TalkingHost:
    """A host whose .bashrc prints; it is the login host and the node."""

    name = "login"

    async def run(
        self,
        argv: Sequence[str],
        *,
        node: str | None = None,
        stdin: bytes = b"",
        timeout_s: float = 0.0,
    ) -> Completed:
        talking = ("sh", "-c", 'echo "Welcome, dear user"; exec "$@"', "sh", *argv)
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*talking, stdin=pipe, stdout=pipe)
        out, _ = await process.communicate(stdin)
        return Completed(process.returncode or 0, out, b"")


@pytest.fixture
def here(tmp_path: Path) -> tuple[JobAttachment, list[str]]:
    """The starter of agents, and its messages. srun runs the step's command here."""
    srun = tmp_path / "srun"
    srun.write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n')
    srun.chmod(0o755)
    (tmp_path / "jobs").mkdir()
    said: list[str] = []
    attachment = JobAttachment(
        cast(Link, TalkingHost()),
        Slurm(str(tmp_path)),
        Installed(str(tmp_path), str(tmp_path), "agent", "true"),
        name="tk-p",
        node_ssh="auto",
        say=said.append,
    )
    return attachment, said


async def test_a_greeting_is_no_status_and_no_reason(
    here: tuple[JobAttachment, list[str]], tmp_path: Path
) -> None:
    attachment, said = here
    status = tmp_path / "status"
    body = f"echo running node1 12 >'{status}'"
    assert await attachment.start("7", "node1", body, str(status)) == HolderStatus("node1", 12)
    assert said == []
    outside = f"echo 'tk-outside: no cgroup'; {body}"
    assert await attachment.start("7", "node1", outside, str(status)) == HolderStatus("node1", 12)
    assert len(said) == 1 and "no part of job 7 (no cgroup)" in said[0]


async def test_a_peer_that_runs_is_found_behind_a_greeting(
    here: tuple[JobAttachment, list[str]], tmp_path: Path
) -> None:
    status = tmp_path / "status"
    status.write_text("running node2 34\n")
    assert await here[0].start_peer("7", "node2", "", str(status), ends_with="") == 34


class RefusedHost(TalkingHost):
    """A login host whose nodes have a key that is not trusted."""

    def __init__(self, error: HostKeyError) -> None:
        self.error = error

    async def is_alive(self) -> bool:
        return True

    async def run(
        self,
        argv: Sequence[str],
        *,
        node: str | None = None,
        stdin: bytes = b"",
        timeout_s: float = 0.0,
    ) -> Completed:
        if node is not None:
            raise self.error
        return await super().run(argv, stdin=stdin)


async def test_an_unknown_node_is_entered_by_the_scheduler_and_a_changed_one_is_not(
    here: tuple[JobAttachment, list[str]],
) -> None:
    attachment, said = here
    attachment._link = cast(Link, RefusedHost(UnknownHostKey("not known")))
    assert await attachment.has_agent("7", "node1")
    assert said == ["node1 refuses ssh (not known)"]
    attachment._link = cast(Link, RefusedHost(HostKeyError("changed")))
    with pytest.raises(HostKeyError, match="changed"):
        await attachment.has_agent("7", "node1")
