"""A scheduler that hangs or whose answer is lost, with a debug session beside it."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import aclosing
from pathlib import Path

import pytest

from tests.support.login_rig import LoginHost, debugging
from tests.support.scheduler_rig import COMMANDS, Programs
from tests.support.scheduler_rig import host as host
from tests.support.scheduler_rig import programs as programs
from tests.support.scheduler_rig import project as project
from tests.support.tkrig import Project
from tunnelkit.link.openssh.link import OpenSSHLink
from tunnelkit.link.options import LinkOptions
from tunnelkit.model import Completed, Hop, JobState
from tunnelkit.scheduler.base import Command
from tunnelkit.scheduler.poller import Poller
from tunnelkit.scheduler.slurm.adapter import Slurm

#: What ends the connection that it runs in: the nearest sshd above it.
_CUT = """
pid=$$
while [ "$pid" -gt 1 ] && [ "$(cat /proc/$pid/comm)" != sshd ]; do
  pid=$(sed 's/.*) . //; s/ .*//' /proc/$pid/stat)
done
kill -9 "$pid"
"""


@pytest.mark.logins(login=2)  # the test has a link of its own
async def test_a_hung_scheduler_is_unknown_and_never_the_end(
    host: LoginHost, programs: Programs, project: Project, tmp_path: Path
) -> None:
    options = LinkOptions(login=Hop("login"), ssh_config=host.client_config)
    link = OpenSSHLink(options, control_dir=host.home / "l")
    async with debugging(project):
        job = (await project.status())["job"]["id"]
        programs.replace("squeue", "exec sleep 600")

        async def run(command: Command) -> Completed:
            return await link.run(command.argv, stdin=command.stdin, timeout_s=1.0)

        await link.open()
        try:
            poller = Poller(run, Slurm(str(programs.directory)))
            async with aclosing(poller.watch(job)) as states:
                assert (await anext(states)).state is JobState.UNKNOWN
                assert (await project.status())["state"] == "ready", "tk answers meanwhile"
                programs.restore()
                assert (await anext(states)).state is JobState.RUNNING
        finally:
            await link.close()


@pytest.mark.logins(login=2)
async def test_the_reply_of_sbatch_is_lost_and_the_job_is_not_submitted_twice(
    host: LoginHost, programs: Programs, project: Project
) -> None:
    once = host.home / "submitted"
    programs.replace(
        "sbatch",
        f'[ "$1" = --version ] && exec "$REAL" "$@"\n'
        f'"$REAL" "$@" > {once}.out\n[ -e {once} ] && exec cat {once}.out\n: > {once}\n{_CUT}',
    )
    status = await project.up("node1", "--cpus", "2")
    assert once.exists(), "the reply was lost"
    assert await project.jobs() == [f"{status['job']['id']} RUNNING"]
    assert len(host.accepted()) == 2


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_once_settled_the_login_host_sees_two_processes_and_a_question_each_30_s(
    host: LoginHost, programs: Programs, project: Project
) -> None:
    """Of two: the sshd that serves us, and for a moment what asks the scheduler. Some sshds have
    a second process, [priv], for each connection."""
    calls = host.home / "calls"
    for name in COMMANDS:
        # No process of its own.
        programs.replace(name, f'read -r at _ </proc/uptime; echo $at >>{calls}; exec "$REAL" "$@"')
    most: list[str] = []
    async with debugging(project):
        settled = len(calls.read_text().split())
        while len(gaps := _gaps(calls)) < settled + 1:
            if len(gaps) == settled - 1 and gaps[-1] < 10:
                settled += 1  # what `tk up` still had to ask
                most = []
            served = [" ".join(one.argv) for one in host.served()]
            most = max(most, [one for one in served if "[priv]" not in one], key=len)
            await asyncio.sleep(0.05)
    assert min(gaps[settled - 1 :]) >= 29.5, gaps
    assert 1 <= len(most) <= 2, most


def _gaps(calls: Path) -> list[float]:
    """The seconds between the scheduler's commands."""
    times = [float(one) for one in calls.read_text().split()]
    return [after - before for before, after in itertools.pairwise(times)]
