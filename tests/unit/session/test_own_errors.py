"""An error of tk's own after `ready`: logged, and told to whoever asks, instead of a silence."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.ports import free_port
from tunnelkit.cli.views.status import lines
from tunnelkit.config.load import load
from tunnelkit.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    ExitCode,
    NoSessionError,
    TunnelkitError,
)
from tunnelkit.link.base import ByteStream
from tunnelkit.messages.agent_calls import INFO
from tunnelkit.session.agent.client import AgentClient, AgentGone
from tunnelkit.session.agent.local_agent import LocalAgent
from tunnelkit.session.backends.ssh import SSH
from tunnelkit.session.daemon import Daemon
from tunnelkit.session.host import SessionHost
from tunnelkit.session.runtime import control_calls as calls
from tunnelkit.session.runtime import control_client
from tunnelkit.session.runtime.control_message import Request
from tunnelkit.session.runtime.event_log import read_events
from tunnelkit.session.runtime.launch_spec import LaunchSpec
from tunnelkit.session.runtime.paths import SessionPaths, session_paths
from tunnelkit.session.runtime.state import SessionState
from tunnelkit.session.session import Session

PATIENCE_S = 20.0


@pytest.fixture
def paths(monkeypatch: pytest.MonkeyPatch) -> Iterator[SessionPaths]:
    """Places of a session that was asked for; short, for their sockets."""
    base = Path(tempfile.mkdtemp(prefix="tko", dir="/tmp"))
    for name in ("run", "project"):
        (base / name).mkdir(mode=0o700)
    monkeypatch.setenv("TK_STATE_DIR", str(base / "state"))
    monkeypatch.setenv("TK_RUNTIME_DIR", str(base / "run"))
    monkeypatch.setenv("TK_CONFIG_DIR", str(base / "config"))
    (base / "project" / "tunnelkit.toml").write_text(
        f'[cluster]\nlogin = "login"\n[debug]\nport = {free_port()}\n'
    )
    made = session_paths(base / "project")
    made.make()
    LaunchSpec(load(base / "project", environ={}), None).save(made.launch_wanted)
    yield made
    shutil.rmtree(base)


class Broken(AgentClient):
    """A conversation that meets a bug of ours once `breaks` is set."""

    breaks: asyncio.Event

    async def run(self) -> str:
        await self.breaks.wait()
        raise ZeroDivisionError("a bug")


@asynccontextmanager
async def ready(
    paths: SessionPaths,
    monkeypatch: pytest.MonkeyPatch,
    client: Callable[[Session], Awaitable[AgentClient]],
) -> AsyncIterator[None]:
    """A daemon whose session is ready, with that client of an agent."""

    async def up(self: Session) -> None:
        self.editor_port.open()
        self.agents.use(await client(self))
        self.settled.set()
        for state in ("connecting", "reconnecting", "ready"):
            self.states.become(SessionState(state))

    monkeypatch.setattr(Session, "up", up)
    daemon = asyncio.create_task(Daemon(paths).run())
    yield
    with contextlib.suppress(NoSessionError):
        async with control_client.connect(paths) as session:
            await session.call(calls.Down(keep=True))
    async with asyncio.timeout(PATIENCE_S):
        await daemon


@pytest.fixture
async def breaks(
    paths: SessionPaths, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[asyncio.Event]:
    """A daemon whose session is ready; the event lets its `run` meet the bug."""
    breaks = asyncio.Event()

    async def client(session: Session) -> AgentClient:
        async def dial() -> Any:
            raise AssertionError("nobody dials here")

        agent = Broken(dial, on_channel=lambda channel, header: None, notices={})
        agent.breaks = breaks
        return agent

    async with ready(paths, monkeypatch, client):
        yield breaks


async def ask_once(paths: SessionPaths, request: Request[Any]) -> Any:
    async with asyncio.timeout(PATIENCE_S), control_client.connect(paths) as session:
        return await session.call(request)


async def ask(paths: SessionPaths, request: Request[Any]) -> Any:
    async with asyncio.timeout(PATIENCE_S):
        while not paths.control_socket.exists():
            await asyncio.sleep(0.01)
    return await ask_once(paths, request)


async def ended(paths: SessionPaths) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE_S):
        while (status := await ask(paths, calls.Status()))["state"] != "ended":
            await asyncio.sleep(0.01)
    return dict(status)


async def test_it_is_logged_and_told_by_status_and_the_next_command(
    paths: SessionPaths, breaks: asyncio.Event, caplog: pytest.LogCaptureFixture
) -> None:
    assert (await ask(paths, calls.Status()))["state"] == "ready"
    breaks.set()
    status = await ended(paths)
    assert "ZeroDivisionError: a bug" in status["detail"]
    assert "ended the session met an error of its own" in lines(status)[0]
    requests: tuple[Request[Any], ...] = (
        calls.Settled(),
        calls.Sync(),
        calls.Ready(),
        calls.ForwardAdd(forward=f"{free_port()}:localhost:1"),
        calls.Mount(mountpoint="/nowhere"),
    )
    for request in requests:
        with pytest.raises(TunnelkitError, match="an error of its own") as caught:
            await ask(paths, request)
        assert caught.value.exit_code == ExitCode.FAILURE
        assert caught.value.cause == "a bug"
        assert "`tk up` goes on" in (caught.value.hint or "")
        assert str(paths.session_log) in (caught.value.hint or "")
    assert "Traceback" in caplog.text and "ZeroDivisionError: a bug" in caplog.text


async def test_streams_are_told_too(paths: SessionPaths, breaks: asyncio.Event) -> None:
    breaks.set()
    await ended(paths)
    async with asyncio.timeout(PATIENCE_S), control_client.connect(paths) as session:
        for stream in (
            calls.ExecStream(argv=["true"], cwd="/"),
            calls.LoopStream(words=["true"]),
        ):
            detail = await session.open(stream).closed()
            assert detail is not None
            assert "an error of its own" in detail["failure"]["message"]


async def test_the_daemon_stays_until_it_is_told_to_end(
    paths: SessionPaths, breaks: asyncio.Event
) -> None:
    breaks.set()
    await ended(paths)
    await ask(paths, calls.Down(keep=True))
    async with asyncio.timeout(PATIENCE_S):
        while paths.control_socket.exists():
            await asyncio.sleep(0.01)
    with pytest.raises(NoSessionError):
        await ask_once(paths, calls.Status())


def bare(paths: SessionPaths) -> Session:
    """A session without a daemon, not started."""
    return Session(
        LaunchSpec.load(paths.launch_wanted),
        paths,
        SSH,
        SessionHost(
            prompter=None,  # type: ignore[arg-type]
            say=lambda text: None,
            changed=lambda: None,
        ),
    )


async def test_what_only_the_user_can_solve_is_an_event_with_its_error(
    paths: SessionPaths,
) -> None:
    session = bare(paths)
    refused = AuthenticationFailed("login refuses you", cause="Permission denied", hint="tk auth")
    session._connection.on_stuck("link", refused)
    assert session.stuck is refused
    session._connection.on_stuck("link", None)
    (event,) = read_events(paths.events, 10)
    assert (event["kind"], event["error"]) == ("error", refused.to_json())


async def test_why_the_allocation_ended_is_kept_as_an_error(
    paths: SessionPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = AgentGone("the agent on the node was restarted", hint="tk up")

    async def lost(self: AgentClient) -> str:
        raise gone

    async def dial() -> Any:
        raise AssertionError("nobody dials here")

    monkeypatch.setattr(AgentClient, "run", lost)
    session = bare(paths)
    session.agents.use(AgentClient(dial, on_channel=lambda *opened: None, notices={}))
    session.states.become(SessionState.CONNECTING)
    refused = ConnectionFailed("no link", cause="refused", hint="wait", transient=True)
    session._on_agent_link(False, refused.one_line(), refused)
    assert session.events.recent[-1]["error"] == refused.to_json()
    async with asyncio.timeout(PATIENCE_S):
        await session.run()
    assert session.states.state is SessionState.ENDED
    event = next(one for one in session.events.recent if one["kind"] == "scheduler")
    assert event["error"] == gone.to_json()
    await session.close("the test is over")


class UnheardAgent:
    """An agent on this machine. Its link can be `cut`, and `gone` lets the next dial know more."""

    def __init__(self, directory: Path) -> None:
        self._local = LocalAgent(directory, f"own-{os.getpid()}-{secrets.token_hex(4)}")
        self.is_cut = False
        self.gone = asyncio.Event()

    async def dial(self) -> ByteStream:
        if self.is_cut:
            await self.gone.wait()
            raise AgentGone("there is no agent on the node any more", hint="tk up")
        return await self._local.dial()

    async def connect(self, session: Session, kind: type[AgentClient] = AgentClient) -> AgentClient:
        session.cluster.allocated.open_stream = self.dial  # type: ignore[method-assign]
        self.session, opened = session, session.agents._opened
        self.client = kind(self.dial, on_channel=opened, notices={})
        await self.client.connect()
        self.pid = int(str((await INFO.ask(self.client, {}))["pid"]))
        return self.client

    def cut(self) -> None:
        self.is_cut = True
        self.client.drop_link("cut")


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[UnheardAgent]:
    """An agent that is not left behind."""
    agent = UnheardAgent(tmp_path)
    yield agent
    with contextlib.suppress(ProcessLookupError):
        os.kill(agent.pid, signal.SIGKILL)


async def test_what_waits_for_an_agent_that_ended_unheard_is_told(
    paths: SessionPaths, monkeypatch: pytest.MonkeyPatch, agent: UnheardAgent
) -> None:
    reason = "the allocation is over: there is no agent on the node any more"
    forward = calls.ForwardAdd(forward=f"{free_port()}:localhost:1", wire=True)
    async with ready(paths, monkeypatch, agent.connect), asyncio.timeout(PATIENCE_S):
        await ask(paths, calls.Settled())
        async with control_client.connect(paths) as session:
            running = session.open(calls.ExecStream(argv=["cat"], cwd="/"))
            await running.write(b"here")
            assert await running.read() == b"here"
            agent.cut()
            later = session.open(calls.ExecStream(argv=["cat"], cwd="/"))
            waiting = asyncio.create_task(session.call(forward))
            await eventually_waits(agent.client)
            agent.gone.set()
            for stream in (running, later):
                detail = await stream.closed()
                assert detail is not None and str(detail["error"]).startswith(reason)
            with pytest.raises(TunnelkitError) as caught:
                await waiting
            assert reason in caught.value.one_line() and caught.value.hint
            await ended(paths)
            detail = await session.open(calls.ExecStream(argv=["cat"], cwd="/")).closed()
            assert detail is not None and "allocation is over" in detail["failure"]["message"]
            assert detail["failure"]["exit_code"] == ExitCode.NO_SESSION
            with pytest.raises(NoSessionError, match="the allocation is over"):
                await session.call(forward)


async def eventually_waits(client: AgentClient) -> None:
    """Return once a call waits for the agent."""
    while not client._rpc._waiting:
        await asyncio.sleep(0.01)


async def test_a_run_is_told_of_an_error_of_tk_and_tk_down_ends_the_agent(
    paths: SessionPaths, monkeypatch: pytest.MonkeyPatch, agent: UnheardAgent
) -> None:
    breaks = asyncio.Event()

    async def connect(session: Session) -> AgentClient:
        client = await agent.connect(session, Broken)
        assert isinstance(client, Broken)
        client.breaks = breaks
        return client

    async with ready(paths, monkeypatch, connect), asyncio.timeout(PATIENCE_S):
        await ask(paths, calls.Settled())
        agent.session._connection.keeper._up.set()
        async with control_client.connect(paths) as session:
            running = session.open(calls.ExecStream(argv=["cat"], cwd="/"))
            await running.write(b"here")
            assert await running.read() == b"here"
            breaks.set()
            detail = await running.closed()
            assert detail is not None and "an error of its own" in str(detail["error"])
            await session.call(calls.Down())
        while paths.control_socket.exists():
            await asyncio.sleep(0.01)
    assert agent.session.all_ended


async def test_a_task_beside_that_fails_is_logged(
    paths: SessionPaths, breaks: asyncio.Event, caplog: pytest.LogCaptureFixture
) -> None:
    async def meets_a_bug() -> None:
        raise LookupError(f"of {os.getpid()}")

    session = bare(paths)
    with caplog.at_level(logging.ERROR, "tunnelkit.session"):
        await asyncio.gather(session._tasks.spawn(meets_a_bug()), return_exceptions=True)
        await asyncio.sleep(0)
    assert "meets_a_bug ended by an error" in caplog.text
    assert f"LookupError: of {os.getpid()}" in caplog.text
