"""`tk up` beside a session's process: one that ends at that moment, one for another cluster."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tunnelkit import __version__
from tunnelkit.cli.commands.start import up
from tunnelkit.config.load import load
from tunnelkit.errors import NoSessionError, UsageError
from tunnelkit.session.runtime import blocking_client
from tunnelkit.session.runtime.launch_spec import LaunchSpec


async def test_a_session_that_was_just_killed_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its socket still accepts while the kernel takes it away; its lock goes with it."""

    async def hangs_up(paths: object) -> None:
        raise NoSessionError("no session is up for this project", hint="start one: tk up [NODE]")

    monkeypatch.setattr(up, "_current", hangs_up)
    monkeypatch.setattr(up, "_KILLED_S", 0.05)
    paths: Any = SimpleNamespace(lock=tmp_path / "lock", session_log=tmp_path / "log")
    assert await up._current_unless_killed(paths) is None
    with open(paths.lock, "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(NoSessionError):
            await up._current_unless_killed(paths)


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., LaunchSpec]:
    """Makes the launch of a `tk up` whose project names alpha, beside a session on alpha."""
    monkeypatch.setenv("TK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("TK_RUNTIME_DIR", str(tmp_path / "run"))
    ssh_config = tmp_path / "ssh_config"
    ssh_config.write_text("Host alpha alpha.example.org\n  HostName alpha.example.org\n  User me\n")

    async def current(paths: object) -> dict[str, Any]:
        return {"state": "ready", "version": __version__, "login": "alpha", "node": "node4",
                "wanted_node": None, "job": {"id": "4711"}}  # fmt: skip

    monkeypatch.setattr(up, "_current", current)
    monkeypatch.setattr(blocking_client, "is_alive", lambda paths: True)

    def make(
        login: str = "alpha", environ: Mapping[str, str] | None = None, flag: str | None = None
    ) -> LaunchSpec:
        named = f'login = "{login}"' if login else ""
        text = f'[cluster]\n{named}\nssh_config = "{ssh_config}"\n'
        (tmp_path / "tunnelkit.toml").write_text(text)
        flags = {"cluster.login": flag}
        return LaunchSpec(load(tmp_path, overrides=flags, environ=environ or {}), None)

    return make


async def test_a_session_on_another_cluster_is_not_said_to_be_ready(
    launch: Callable[..., LaunchSpec], tmp_path: Path
) -> None:
    profiles = tmp_path / "config" / "clusters"
    profiles.mkdir(parents=True)
    (profiles / "beta.toml").write_text('[cluster]\nlogin = "me@beta"\n')
    for wanted in (
        launch(flag="me@beta"),
        launch(environ={"TK_CLUSTER_LOGIN": "me@beta"}),
        launch("", {"TK_PROFILE": "beta", "TK_CONFIG_DIR": str(profiles.parent)}),
    ):
        with pytest.raises(UsageError, match="goes to alpha, not to me@beta") as caught:
            await up._up(wanted)
        assert "tk down first" in caught.value.one_line()


async def test_the_same_host_in_other_words_is_no_other_cluster(
    launch: Callable[..., LaunchSpec], capsys: pytest.CaptureFixture[str]
) -> None:
    status: Any = await up._current(None)  # type: ignore[arg-type]
    for login in ("alpha", "me@alpha", "me@alpha.example.org"):
        await up._check_same_cluster(launch(flag=login), status)
    assert capsys.readouterr().err == ""
    # A file may have been changed since: `tk up` alone tells the state of what is up.
    await up._check_same_cluster(launch("me@beta"), status)
    printed = capsys.readouterr().err
    assert "tunnelkit.toml:2 says me@beta; this session goes to alpha, until tk down" in printed
