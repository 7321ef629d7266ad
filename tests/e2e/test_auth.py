"""Second factors: asked once, in the terminal; never again without a person's action."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.support.login_rig import STOP, project_by, waits_for_a_person
from tests.support.logins import allowed
from tests.support.pam_rig import ASKS, CodeHost, code_host, why_no_pam
from tests.support.pty_terminal import Screen, on_a_terminal
from tests.support.tkrig import Project, eventually
from tunnelkit.errors import ExitCode
from tunnelkit.lab import LabInfo

pytestmark = [
    pytest.mark.root,
    pytest.mark.usefixtures("counted_logins"),
    pytest.mark.skipif(bool(why_no_pam()), reason=str(why_no_pam())),
]
BOTH = ["publickey", "keyboard-interactive/pam"]


@pytest.fixture
def host(slurm_lab: LabInfo, request: pytest.FixtureRequest) -> Iterator[CodeHost]:
    with code_host(slurm_lab) as made:
        made.logins = allowed(request, "login")
        yield made


@pytest.fixture(params=["openssh", "paramiko"])
async def project(host: CodeHost, request: pytest.FixtureRequest) -> AsyncIterator[Project]:
    async with project_by(host, f'link = "{request.param}"') as made:
        yield made


async def answer(screen: Screen, host: CodeHost, code: str | None = None) -> None:
    """Wait for the question, and type the code of the moment (or this one)."""
    await screen.shows(ASKS)
    host.visits += 1
    screen.type(f"{code or host.code()}\n")


async def up(project: Project, host: CodeHost) -> None:
    async with on_a_terminal(project, "up", "node1", "--cpus", "2") as screen:
        await answer(screen, host)
        await screen.shows("ready.* on node1")
        assert await screen.ended() == 0
    status = await project.status()
    project._far_tags.add(f"TK_PROCESS={status['agent']['pid']}.")


@pytest.mark.logins(2)
async def test_one_prompt_at_up_and_after_a_cut_none_without_tk_auth(
    project: Project, host: CodeHost
) -> None:
    await up(project, host)
    assert host.accepted().count(BOTH[1]) == 1
    for number in range(5):
        assert (await project.tk("run", "echo", str(number))).out == f"{number}\n"
    await project.tk("forward", str(project.port + 1000) + ":22")
    terminal = await project.loop("python", "2.py")
    editor, thread, _ = await project.f5_to_stop(STOP)
    assert host.accepted().count(BOTH[1]) == 1, "runs, a forward and a loop ride along"

    host.cut()
    words = await waits_for_a_person(project)
    assert "keyboard-interactive" in words
    await terminal.line("run: tk auth")  # where one looks while debugging
    assert "waiting  for you: tk auth" in (await project.tk("status")).out
    assert "run: tk auth" in (await project.tk("logs", "--session")).out
    ready = await project.tk("ready", code=int(ExitCode.CONNECTION))
    assert "tk auth" in ready.err and ready.err.count("\n") == 1
    # One look in BatchMode and no more, however long nobody comes.
    arrived = host.arrivals()
    await asyncio.sleep(3)
    assert host.arrivals() == arrived
    assert host.secrets() == 1

    async with on_a_terminal(project, "auth") as screen:
        await answer(screen, host)
        await screen.shows("connected to login: ready")
        assert await screen.ended() == 0
    status = await project.status()
    assert status["state"] == "ready" and status["attention"] is None
    # The same debug session, where it was left; nothing of it noticed.
    await editor.request("next", threadId=thread)
    thread, frame = await editor.stopped()
    assert frame["line"] == STOP + 1
    assert (await project.tk("run", "echo", "back")).out == "back\n"
    assert host.accepted().count(BOTH[1]) == 2 and host.secrets() == 2
    assert [one["forward"] for one in status["forwards"]], "the forward is there again"


@pytest.mark.slow
@pytest.mark.logins(2)
async def test_a_wrong_code_costs_one_attempt_and_tk_auth_may_try_again(
    project: Project, host: CodeHost
) -> None:
    await up(project, host)
    host.cut()
    await waits_for_a_person(project)
    async with on_a_terminal(project, "auth") as screen:
        host.refusals = 1
        await answer(screen, host, "000000")
        assert await screen.ended() == int(ExitCode.CONNECTION)
        assert "did not let us in" in screen.text and screen.text.count("One-time password") == 1
    assert (await project.status())["attention"]
    # Nobody at a terminal: it asks nobody, and sends nothing in anybody's place.
    host.visits += 1
    done = await project.tk("auth", code=int(ExitCode.CONNECTION))
    assert "nobody answered" in done.err and "tk auth" in done.err
    assert host.said().count("Failed keyboard-interactive") == 1
    async with on_a_terminal(project, "auth") as screen:
        await answer(screen, host)
        assert await screen.ended() == 0
    assert (await project.status())["state"] == "ready"


@pytest.mark.logins(0)
async def test_a_wrong_code_at_up_is_said_and_leaves_nothing(
    project: Project, host: CodeHost
) -> None:
    async with on_a_terminal(project, "up", "node1") as screen:
        host.refusals = 1
        await answer(screen, host, "123456")
        assert await screen.ended() == int(ExitCode.CONNECTION)
    assert "did not let us in" in screen.text
    assert host.accepted() == [] and host.secrets() == 1
    await eventually(lambda: not project.laptop_processes(), "the session has ended")


@pytest.mark.slow
@pytest.mark.logins(login=2)
async def test_tk_auth_helps_a_tk_up_that_waits_in_the_queue(
    project: Project, host: CodeHost
) -> None:
    words = "sbatch --parsable --exclusive -w node1 -t 10 -o /dev/null --wrap 'sleep 600'"
    other = (await project.do_on_login("sh", "-c", words)).strip()
    try:
        async with on_a_terminal(project, "up", "node1") as waiting:
            await answer(waiting, host)
            await waiting.shows("queued, job")
            host.cut()
            # Who waits is told, and not asked again without having said so.
            await waiting.shows("run: tk auth")
            async with on_a_terminal(project, "auth") as screen:
                await answer(screen, host)
                assert await screen.ended() == 0
            assert host.secrets() == 2
            await project.do_on_login("scancel", other)
            await waiting.shows("ready.* on node1")
            assert await waiting.ended() == 0
    finally:
        await project.do_on_login("scancel", other, code=None)


@pytest.mark.slow
@pytest.mark.logins(2)
async def test_a_killed_session_is_taken_over_with_one_question_at_most(
    project: Project, host: CodeHost
) -> None:
    """OpenSSH's connection outlives it; paramiko's went with it, and nobody is asked for another
    before somebody says `tk up`."""
    await up(project, host)
    before = await project.status()
    os.kill(before["pid"], signal.SIGKILL)
    anew = "paramiko" in (project.dir / "tunnelkit.toml").read_text()
    async with on_a_terminal(project, "up") as screen:
        if anew:
            await answer(screen, host)
            await screen.shows("logged in again. The last session was killed")
        await screen.shows("ready.* on node1")
        assert await screen.ended() == 0
    assert screen.text.count("One-time password") == host.secrets() - 1 == int(anew)
    after = await project.status()
    assert after["job"]["id"] == before["job"]["id"] and after["job"]["adopted"]
    assert after["agent"]["pid"] == before["agent"]["pid"]
