"""`tk down` when the cluster did not confirm the job's end, or the laptop has restarted."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.ports import free_port
from tunnelkit.cli.views import down
from tunnelkit.config.load import load
from tunnelkit.errors import AllocationError, ConnectionFailed
from tunnelkit.session.runtime.launch_spec import LaunchSpec
from tunnelkit.session.runtime.paths import session_paths


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A session that ends as soon as it is told to; its launch file."""
    # A socket's path is short.
    with tempfile.TemporaryDirectory(prefix="tk") as runtime:
        yield _stopped(tmp_path, Path(runtime), monkeypatch)


def _stopped(tmp_path: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TK_STATE_DIR", str(tmp_path / "STATE"))
    monkeypatch.setenv("TK_RUNTIME_DIR", str(runtime))
    (tmp_path / "tunnelkit.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    paths = session_paths(tmp_path)
    paths.make()

    async def stop(paths: Any, *, keep: bool) -> None:
        pass

    monkeypatch.setattr(down, "is_alive", lambda paths: True)
    monkeypatch.setattr(down, "stop", stop)
    return paths.launch


def test_a_job_that_may_be_left_is_told(stopped: Path) -> None:
    stopped.write_text("{}")
    with pytest.raises(AllocationError, match="may still be there") as caught:
        down.end_session()
    assert "`tk down` once more" in caught.value.one_line()


@pytest.mark.parametrize(("keep", "says"), [(False, "down\n"), (True, "down; the job lives on\n")])
def test_otherwise_it_is_down(
    stopped: Path, capsys: pytest.CaptureFixture[str], keep: bool, says: str
) -> None:
    if keep:
        stopped.write_text("{}")
    down.end_session(keep=keep)
    assert capsys.readouterr().out == says


def test_after_a_restart_of_the_laptop_it_still_looks_for_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launch record is there; the runtime directory, a tmpfs, is empty."""
    with tempfile.TemporaryDirectory(prefix="tk") as runtime:
        launch = _stopped(tmp_path, Path(runtime) / "gone", monkeypatch)
        shutil.rmtree(Path(runtime) / "gone")
        monkeypatch.setattr(down, "is_alive", lambda paths: False)
        where = f'[cluster]\nlogin = "127.0.0.1:{free_port()}"\n'
        (tmp_path / "tunnelkit.toml").write_text(where)
        LaunchSpec(load(tmp_path, environ={}), None).save(launch)
        with pytest.raises(ConnectionFailed, match=r"127\.0\.0\.1"):
            down.end_session()
        assert launch.exists(), "the next `tk down` looks again"
