"""The warning before the job's time limit: its lead time travels from sbatch to the session."""

from __future__ import annotations

import asyncio
import os
import signal
import uuid
from pathlib import Path
from typing import Any

import pytest

from tunnelkit.agent.agent import WARNING_VARIABLE, take_warning_s
from tunnelkit.scheduler.slurm import submit
from tunnelkit.session.agent.client import AgentClient
from tunnelkit.session.agent.local_agent import LocalAgent


def test_the_jobs_script_and_the_agent_name_the_same_variable() -> None:
    assert submit.WARNING_VARIABLE == WARNING_VARIABLE


@pytest.mark.parametrize(
    ("text", "lead_s"),
    [("30", 30), ("120", 120), ("", 120), ("soon", 120), ("-5", 120)],
)
def test_lead_time_is_taken_out_of_the_environment(
    text: str, lead_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(WARNING_VARIABLE, text)
    assert take_warning_s() == lead_s
    assert WARNING_VARIABLE not in os.environ
    assert take_warning_s() == 120


async def test_agent_reports_the_lead_time_that_its_job_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(WARNING_VARIABLE, "30")
    warned: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    async def warn(params: dict[str, Any]) -> None:
        warned.set_result(params)

    agent = LocalAgent(tmp_path, f"test-{uuid.uuid4().hex[:12]}")
    client = AgentClient(
        agent.dial, on_channel=lambda channel, header: None, notices={"time-limit": warn}
    )
    await client.connect()
    try:
        info = await client.call("info")
        os.kill(info["pid"], signal.SIGUSR1)
        assert await asyncio.wait_for(warned, 20) == {"left_s": 30}
        # What the agent starts must not take it for its own.
        probe = ["sh", "-c", f'[ -z "${WARNING_VARIABLE}" ]']
        assert await client.call("exec.probe", argv=probe) == 0
    finally:
        await client.shut_down("test over")
        await client.close("test over")
