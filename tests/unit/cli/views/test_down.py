"""`tk down` when the cluster did not confirm the job's end."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tunnelkit.cli.views import down
from tunnelkit.errors import AllocationError
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
