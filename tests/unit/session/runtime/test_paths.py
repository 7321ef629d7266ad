"""Where sessions live: stable ids, private directories, names that schedulers take."""

from __future__ import annotations

import errno
import io
import os
import socket
import tempfile
from pathlib import Path

import pytest

from tunnelkit import machine
from tunnelkit.errors import ConfigError
from tunnelkit.model import check_job_name
from tunnelkit.session.runtime import paths as p

ONE, OTHER = "0123456789abcdef" * 2, "fedcba9876543210" * 2


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_FILE", tmp_path / "etc-machine-id")
    (tmp_path / "etc-machine-id").write_text(f"{ONE}\n")
    monkeypatch.setenv("TK_STATE_DIR", str(tmp_path / "state"))
    (tmp_path / "run").mkdir()
    monkeypatch.setenv("TK_RUNTIME_DIR", str(tmp_path / "run"))


def test_the_same_project_has_the_same_session(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert p.session_paths(tmp_path / "a") == p.session_paths(tmp_path / "link")
    assert p.session_paths(tmp_path / "a").id != p.session_paths(tmp_path).id


def test_another_machine_has_another_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = p.session_paths(tmp_path).id
    monkeypatch.setenv("TK_STATE_DIR", str(tmp_path / "other-state"))
    assert p.session_paths(tmp_path).id != here


@pytest.mark.parametrize(
    ("text", "name", "is_first"),
    [
        (ONE, "first", True),
        (OTHER, "other", False),
        (ONE, "renamed", True),
        (OTHER, "first", True),  # diskless: it has another id after each boot
        ("uninitialized", "other", True),
        (None, "container", True),
    ],
)
def test_machines_with_one_home_have_sessions_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, name: str, is_first: bool
) -> None:
    """The second would take the first one's session for a killed one, and cancel its job."""
    monkeypatch.setattr(socket, "gethostname", lambda: "first")
    first = p.session_paths(tmp_path).id
    file = tmp_path / "another"
    if text is not None:
        file.write_text(f"{text}\n")
    monkeypatch.setattr(machine, "_FILE", file)
    monkeypatch.setattr(socket, "gethostname", lambda: name)
    assert (p.session_paths(tmp_path).id == first) == is_first
    assert p.session_paths(tmp_path).id == p.session_paths(tmp_path).id
    assert ONE not in (tmp_path / "state" / "first-machine").read_text()


def test_an_id_that_is_mounted_for_this_boot_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.NamedTemporaryFile("w", dir="/dev/shm") as file:
        file.write(ONE)
        file.flush()
        monkeypatch.setattr(machine, "_FILE", Path(file.name))
        assert machine.machine_id() == ONE
        monkeypatch.setattr(machine, "_FILE", Mounted(file.name))
        assert machine.machine_id() == ""


class Mounted(type(Path())):  # type: ignore[misc]
    """A file on another file system than the directory that it seems to be in."""

    @property
    def parent(self) -> Path:
        return Path("/proc")


def test_a_session_from_before_there_was_a_first_machine_is_found(tmp_path: Path) -> None:
    here = p.session_paths(tmp_path).id
    (tmp_path / "state" / "first-machine").unlink()
    assert p.session_paths(tmp_path).id == here


def test_a_session_that_lives_is_found_from_another_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A terminal of cron's or su's must not take it for a killed one, and cancel its job."""
    monkeypatch.setenv("TK_RUNTIME_DIR", str(tmp_path / "one"))
    first = p.session_paths(tmp_path)
    first.make()
    with p.hold_lock(first):
        monkeypatch.setenv("TK_RUNTIME_DIR", str(tmp_path / "other"))
        assert p.session_paths(tmp_path) == first
        first.runtime.chmod(0o755)  # others could have made it
        assert p.session_paths(tmp_path) != first
        first.runtime.chmod(0o700)
    here = p.session_paths(tmp_path)
    assert here.runtime == tmp_path / "other" / "tk" / here.id, "nobody lives there any more"


def test_a_full_disk_leaves_no_machine_without_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session's id would be another one with each command."""
    monkeypatch.setenv("TK_STATE_DIR", str(tmp_path / "state"))
    file = tmp_path / "state" / "machine-id"
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdopen", lambda *args: io.BytesIO())  # it takes no text
        with pytest.raises(TypeError):
            p.session_paths(tmp_path)
    assert list(file.parent.iterdir()) == []
    file.write_text("")
    here = p.session_paths(tmp_path).id
    assert len(file.read_text()) == 32 and p.session_paths(tmp_path).id == here
    assert sorted(one.name for one in file.parent.iterdir()) == ["first-machine", "machine-id"]


def test_a_machine_id_that_can_not_be_read_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TK_STATE_DIR", str(tmp_path / "state"))
    (tmp_path / "state" / "machine-id").mkdir(parents=True)
    with pytest.raises(ConfigError, match="machine-id can't be read"):
        p.session_paths(tmp_path)


@pytest.mark.parametrize(
    "name", ["plain", "with space", "new\nline", "ünïcode", "a'b\"c", "-x", "."]
)
def test_any_directory_name_gives_a_job_name(name: str) -> None:
    check_job_name(p.job_name(Path("/tmp") / name, "ab12cd34"))


def test_directories_are_private(tmp_path: Path) -> None:
    paths = p.session_paths(tmp_path)
    paths.make()
    for path in (paths.runtime.parent, paths.runtime, paths.link_dir, paths.state):
        assert path.stat().st_mode & 0o777 == 0o700, path


def test_a_symlink_in_our_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "victim")
    with pytest.raises(ConfigError):
        p.private_directory(tmp_path / "link")


@pytest.mark.root
@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory away")
def test_somebody_elses_directory_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "theirs"
    other.mkdir()
    os.chown(other, 65534, 65534)
    with pytest.raises(ConfigError, match="not a directory of yours"):
        p.private_directory(other)


async def test_a_lock_that_nobody_holds_is_not_waited_for(tmp_path: Path) -> None:
    paths = p.session_paths(tmp_path)
    await p.wait_unlocked(paths, timeout_s=1.0)
    paths.make()
    paths.lock.touch()
    await p.wait_unlocked(paths, timeout_s=1.0)


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where tk's directory is without any variable: what stands in /tmp's place."""
    monkeypatch.delenv("TK_RUNTIME_DIR")
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(p, "SHARED", tmp_path)
    return tmp_path / f"tk-{os.getuid()}"


def test_the_shared_place_is_left_for_good_once_it_was_somebody_elses(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TK_STATE_DIR", "/tmp/state")
    assert p.runtime_root() == shared
    shared.symlink_to("/")
    assert p.runtime_root() == Path("/tmp/state/run")
    monkeypatch.setenv("TK_STATE_DIR", str(shared.parent / ("s" * 60)))
    monkeypatch.setenv("HOME", str(shared.parent))
    own = p.runtime_root()
    p.private_directory(own)
    shared.unlink()
    assert p.runtime_root() == own


def test_a_state_directory_too_long_for_sockets_is_not_the_way_out(
    shared: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shared.symlink_to("/")
    monkeypatch.setenv("HOME", str(tmp_path))
    for length in range(20, 100):
        monkeypatch.setenv("TK_STATE_DIR", "/tmp/" + "s" * length)
        root = p.runtime_root()
        assert root == tmp_path / ".tk-run" or len(f"{root}/01234567/l/m-0123456789") <= 86


def test_a_runtime_directory_of_somebody_else_is_not_used(
    shared: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As `su` leaves it in the environment."""
    place = tmp_path / "theirs"
    place.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place))
    assert p.runtime_root() == place / "tk"
    monkeypatch.setattr(os, "getuid", lambda: place.stat().st_uid + 1)
    assert p.runtime_root() != place / "tk"


def test_sessions_in_a_directory_open_to_others_are_none(shared: Path) -> None:
    paths = p.session_paths(Path("/"))
    p.private_directory(p.private_directory(paths.runtime.parent) / paths.id)
    paths.control_socket.touch()
    assert list(p.live_sessions()) == [paths]
    paths.runtime.chmod(0o755)
    assert list(p.live_sessions()) == []
    paths.runtime.chmod(0o700)
    shared.chmod(0o777)
    assert list(p.live_sessions()) == []


def test_a_state_directory_without_hard_links_keeps_the_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on some CIFS and FUSE mounts."""
    monkeypatch.setenv("TK_STATE_DIR", str(tmp_path / "state"))

    def link(*args: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, "link", link)
    assert len({p.session_paths(tmp_path).id for _ in range(3)}) == 1
