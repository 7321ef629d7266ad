"""What a session left on record, as this version and others write it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tunnelkit.cli.commands.start import up
from tunnelkit.config.load import load
from tunnelkit.errors import ConfigError
from tunnelkit.session.runtime.launch_spec import LaunchSpec, LeftSession
from tunnelkit.session.runtime.paths import session_paths

_RELEASED = Path(__file__).parents[1] / "data" / "launch-b2d4be2.json"


def released() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(_RELEASED.read_text())
    return data


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("TK_RUNTIME_DIR", str(tmp_path / "run"))
    return tmp_path / "launch.json"


def test_the_last_releases_file_is_read(file: Path) -> None:
    left = LeftSession.load(_RELEASED)
    assert left is not None and left.settings is not None
    assert (left.login, left.node, left.attach_job) == ("me@cluster-a", "gpu07", "4711")
    assert left.settings.allocation.gpus == 2
    assert LaunchSpec.load(_RELEASED).settings.cluster == left.settings.cluster


def test_the_last_release_reads_what_is_written_now(file: Path) -> None:
    # It takes these keys, and refuses unknown ones in the settings only.
    LaunchSpec.load(_RELEASED).save(file)
    written, known = json.loads(file.read_text()), released()
    assert set(known) <= set(written)
    assert set(written["settings"]) == set(known["settings"])
    assert set(written["settings"]["values"]) == set(known["settings"]["values"])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("cluster.renamed", "x"),  # a key of a later version
        ("allocation.gpus", "many"),  # a form of a later version
        ("debug.port", None),
        ("forwards", 7),
    ],
)
def test_what_cannot_be_read_is_left_out(file: Path, key: str, value: object) -> None:
    data = released()
    data["settings"]["values"][key] = value
    data["later"] = True
    file.write_text(json.dumps(data))
    left = LeftSession.load(file)
    assert left is not None and left.settings is not None
    assert (left.login, left.node, left.attach_job) == ("me@cluster-a", "gpu07", "4711")


@pytest.mark.parametrize("settings", [None, [], {}, {"values": 1}, {"values": {}}])
def test_settings_that_cannot_be_read_hide_neither_login_nor_job(
    file: Path, tmp_path: Path, settings: object
) -> None:
    file.write_text(json.dumps({**released(), "login": "me@cluster-a", "settings": settings}))
    left = LeftSession.load(file)
    assert left is not None
    (tmp_path / "tunnelkit.toml").write_text('[cluster]\nlogin = "me@cluster-b"\n')
    launch = left.launch(lambda: load(tmp_path, environ={}))
    assert str(launch.settings.cluster.login) == "me@cluster-a"
    assert (launch.node, launch.attach_job) == ("gpu07", "4711")


@pytest.mark.parametrize("text", ["", "{", "[]", "\udcff", "null"])
def test_a_damaged_file_is_no_dead_end(file: Path, tmp_path: Path, text: str) -> None:
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    left = LeftSession.load(file)
    assert left == LeftSession()
    (tmp_path / "tunnelkit.toml").write_text('[cluster]\nlogin = "me@b"\n')
    assert str(left.launch(lambda: load(tmp_path, environ={})).settings.cluster.login) == "me@b"


def test_no_file_is_no_session(file: Path) -> None:
    assert LeftSession.load(file) is None


def test_a_login_that_is_none_is_refused(file: Path, tmp_path: Path) -> None:
    file.write_text(json.dumps({"login": "-oProxyCommand=x", "settings": None}))
    left = LeftSession.load(file)
    assert left is not None
    with pytest.raises(ConfigError, match="login host"):
        left.launch(lambda: load(tmp_path, environ={}))


@pytest.mark.parametrize("login", ["me@cluster-a", "me@cluster-b"])
def test_node_and_job_stay_with_their_cluster(
    file: Path, tmp_path: Path, login: str, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = session_paths(tmp_path)
    paths.launch.parent.mkdir(parents=True)
    paths.launch.write_bytes(_RELEASED.read_bytes())
    (tmp_path / "tunnelkit.toml").write_text(f'[cluster]\nlogin = "{login}"\n')
    wanted = LaunchSpec(load(tmp_path, environ={}), None)
    got = up._with_last_job(wanted, paths, with_job=True)
    told = capsys.readouterr().err
    if login == "me@cluster-a":
        assert (got.node, got.attach_job, told) == ("gpu07", "4711", "")
    else:
        assert (got.node, got.attach_job) == (None, None)
        assert "me@cluster-a" in told and "4711" in told


@pytest.mark.parametrize(
    ("left_job", "typed_job", "with_job"),
    [(None, None, True), (None, None, False), ("4711", None, False), ("4711", "4712", True)],
)
def test_a_new_job_is_not_asked_for_on_the_node_of_the_last(
    file: Path, tmp_path: Path, left_job: str | None, typed_job: str | None, with_job: bool
) -> None:
    paths = session_paths(tmp_path)
    paths.launch.parent.mkdir(parents=True)
    left = {**released(), "node": "node4", "attach_job": left_job}
    paths.launch.write_text(json.dumps(left))
    (tmp_path / "tunnelkit.toml").write_text('[cluster]\nlogin = "me@cluster-a"\n')
    wanted = LaunchSpec(load(tmp_path, environ={}), None, attach_job=typed_job)
    assert up._with_last_job(wanted, paths, with_job=with_job) == wanted
