"""What a session tells while its mirrors make the first copy."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tunnelkit.config.load import load
from tunnelkit.errors import MirrorError
from tunnelkit.mirror.api import MirrorState, MirrorStatus
from tunnelkit.mirror.progress import Progress
from tunnelkit.session.backends.ssh import SSH
from tunnelkit.session.files.mirror_json import first_copy
from tunnelkit.session.host import SessionHost
from tunnelkit.session.runtime.launch_spec import LaunchSpec
from tunnelkit.session.runtime.paths import session_paths
from tunnelkit.session.session import Session

PATIENCE_S = 30.0


class Mirrors:
    """A first copy that goes on until told otherwise."""

    def __init__(self, error: MirrorError | None = None) -> None:
        self.go_on = asyncio.Event()
        self.error = error
        status = MirrorStatus(MirrorState.IN_SYNC, files=100, bytes=4_000_000)
        self.all = [
            SimpleNamespace(
                spec=SimpleNamespace(name=name),
                status=lambda: status,
                taken_from=None,
                remote_root=f"/far/{number}",
            )
            for number, name in enumerate(("", "../lib"))
        ]

    async def start(self) -> None:
        await self.go_on.wait()
        if self.error is not None:
            raise self.error

    def progress(self) -> Progress | None:
        return Progress(100, 4_000_000, sent_files=50, sent_bytes=2_000_000)

    def news(self) -> list[str]:
        return ["../lib: a symlink leads out"]


class Heard:
    """What a session said."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("STATE", "RUNTIME", "CONFIG"):
            monkeypatch.setenv(f"TK_{name}_DIR", str(tmp_path / name))
        (tmp_path / "tunnelkit.toml").write_text('[cluster]\nlogin = "login"\n')
        self.said: list[str] = []
        self.sent: list[dict[str, Any]] = []
        self.sending = asyncio.Event()
        self.session = Session(
            LaunchSpec(load(tmp_path, environ={}), None),
            session_paths(tmp_path),
            SSH,
            SessionHost(
                prompter=_no_answer,
                say=self.said.append,
                changed=lambda: None,
                sending=self._sending,
            ),
        )

    def _sending(self, progress: Mapping[str, Any]) -> None:
        self.sent.append(dict(progress))
        self.sending.set()


async def _no_answer(prompt: str, echo: bool) -> str | None:
    return None


async def test_how_far_it_is_and_one_line_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard, mirrors = Heard(tmp_path, monkeypatch), Mirrors()
    heard.session.files.mirrors = mirrors  # type: ignore[assignment]
    async with asyncio.timeout(PATIENCE_S):
        starting = asyncio.create_task(heard.session.files.start())
        await heard.sending.wait()
        assert (heard.sent[0]["files"], heard.sent[0]["files_total"]) == (50, 100)
        mirrors.go_on.set()
        await starting
    assert heard.sent[-1] == {}, "the line goes"
    assert heard.said[0].startswith("mirror: 100 files (4.0 MB)")
    assert heard.said[0].endswith("on login:/far/0")
    assert heard.said[1].startswith("mirror: ../lib: 100 files")
    assert heard.said[2:] == ["warning: ../lib: a symlink leads out"]


async def test_the_line_goes_also_after_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard, mirrors = Heard(tmp_path, monkeypatch), Mirrors(MirrorError("no room"))
    heard.session.files.mirrors = mirrors  # type: ignore[assignment]
    async with asyncio.timeout(PATIENCE_S):
        starting = asyncio.create_task(heard.session.files.start())
        await heard.sending.wait()
        mirrors.go_on.set()
        with pytest.raises(MirrorError, match="no room"):
            await starting
    assert heard.sent[-1] == {} and heard.said == []


def test_the_time_is_told_of_a_long_one() -> None:
    status = MirrorStatus(MirrorState.IN_SYNC, files=2, bytes=3_000)
    assert first_copy(status, 0.4) == "2 files (3.0 kB)"
    assert first_copy(status, 61.6) == "2 files (3.0 kB) in 62 s"
