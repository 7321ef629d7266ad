"""May a node's login ask the user: only where no other route leads to the node."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from tests.unit.session.connection.test_link_keeper import FakeLink
from tunnelkit.config.load import load
from tunnelkit.link.base import Link, LinkKind, LinkSetup
from tunnelkit.session.backends.ssh import SSH
from tunnelkit.session.host import SessionHost
from tunnelkit.session.runtime.launch_spec import LaunchSpec
from tunnelkit.session.runtime.paths import session_paths
from tunnelkit.session.session import Session


async def _nobody(text: str, echo: bool) -> str | None:
    return None


@pytest.mark.parametrize(
    ("node_ssh", "has_scheduler", "asks"),
    [("auto", True, False), ("yes", True, True), ("auto", False, True)],
)
async def test_node_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, node_ssh: str, has_scheduler: bool, asks: bool
) -> None:
    monkeypatch.setenv("TK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("TK_RUNTIME_DIR", str(tmp_path / "run"))
    config = f'[cluster]\nlogin = "login"\nlink = "openssh"\nnode_ssh = "{node_ssh}"\n'
    (tmp_path / "tunnelkit.toml").write_text(config)
    setups: list[LinkSetup] = []

    def make(settings: object, setup: LinkSetup) -> Link:
        setups.append(setup)
        return cast(Link, FakeLink())

    session = Session(
        LaunchSpec(load(tmp_path, environ={}), None),
        session_paths(tmp_path),
        replace(SSH, links=(LinkKind("openssh", make),)),
        SessionHost(prompter=_nobody, say=lambda text: None, changed=lambda: None),
    )
    job: Any = object()
    session.cluster.job = job if has_scheduler else None
    assert setups[0].asks_nodes() is asks
