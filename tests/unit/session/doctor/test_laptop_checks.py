"""The doctor's checks of the laptop, in whole and in broken states."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from tunnelkit.config.load import assemble
from tunnelkit.debug.vscode import vscode
from tunnelkit.errors import ConfigError
from tunnelkit.session.backends.registry import make_link
from tunnelkit.session.doctor import laptop_checks
from tunnelkit.session.doctor.check import CheckStatus
from tunnelkit.session.doctor.context import CheckContext
from tunnelkit.session.runtime.paths import SessionPaths


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    return path


def scene(project: Path, *, runtime: Path | None = None, **overrides: Any) -> CheckContext:
    system = project.parent / "proc"
    settings = assemble(
        project,
        None,
        cwd=project,
        overrides={"cluster.login": "me@login", **overrides},
        environ={},
    )
    paths = SessionPaths("0", runtime or Path("/tmp/tk-none/0"), project.parent / "state")
    return CheckContext(settings, paths, project_dir=project, make_link=make_link, system=system)


def limit(project: Path, watches: int) -> None:
    """A /proc of ours, as inotify's limits can't be changed for a test."""
    sysctls = project.parent / "proc" / "sys" / "fs" / "inotify"
    sysctls.mkdir(parents=True)
    (sysctls / "max_user_watches").write_text(f"{watches}\n")
    (sysctls / "max_user_instances").write_text("128\n")


async def test_too_few_watches_for_the_project(project: Path) -> None:
    limit(project, 12)
    for number in range(10):
        (project / f"d{number}").mkdir()
    found = await laptop_checks.inotify(scene(project))
    assert found.status is CheckStatus.WARN and "11 directories" in found.found
    assert "of 12 (fs.inotify.max_user_watches)" in found.found
    assert (found.fix or "").startswith("sudo sysctl fs.inotify.max_user_watches=1048576")


async def test_enough_watches_and_ignored_directories_need_none(project: Path) -> None:
    limit(project, 12)
    for number in range(10):
        (project / "data" / f"d{number}").mkdir(parents=True)
    found = await laptop_checks.inotify(scene(project, **{"mirror.exclude": ["data/"]}))
    assert found.status is CheckStatus.OK and found.data["directories"] == 1


async def test_watches_in_use_are_counted(project: Path) -> None:
    limit(project, 100)
    process = project.parent / "proc" / "4711"
    (process / "fd").mkdir(parents=True)
    (process / "fdinfo").mkdir()
    os.symlink("anon_inode:inotify", process / "fd" / "5")
    os.symlink("/dev/null", process / "fd" / "6")
    (process / "fdinfo" / "5").write_text("pos:\t0\n" + "inotify wd:1 ino:2 sdev:3\n" * 90)
    (process / "fdinfo" / "6").write_text("inotify wd:1\n")
    found = await laptop_checks.inotify(scene(project))
    assert found.data["taken"] == 90 and found.status is CheckStatus.WARN


async def test_where_there_is_no_inotify(project: Path) -> None:
    assert (await laptop_checks.inotify(scene(project))).status is CheckStatus.SKIP


async def test_ssh(project: Path) -> None:
    found = await laptop_checks.ssh(scene(project))
    assert found.status is CheckStatus.OK and found.found.startswith("OpenSSH")
    found = await laptop_checks.ssh(scene(project, runtime=Path("/tmp") / ("x" * 90)))
    assert found.status is CheckStatus.FAIL and "TK_RUNTIME_DIR" in (found.fix or "")


async def test_a_program_that_is_no_openssh(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "bin" / "ssh"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho 'Dropbear v2022.83' >&2\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    found = await laptop_checks.ssh(scene(project))
    assert found.status is CheckStatus.FAIL and "Dropbear" in found.found


async def test_ssh_config(project: Path, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host login\n  HostName login7.example.org\n  Port 2222\n  ProxyJump gate\n")
    found = await laptop_checks.ssh_config(scene(project, **{"cluster.ssh_config": str(config)}))
    assert found.status is CheckStatus.OK
    assert found.found == "me@login7.example.org:2222 through gate"
    config.write_text("Host login\n  StrictHostKeyChecking no\n")
    found = await laptop_checks.ssh_config(scene(project, **{"cluster.ssh_config": str(config)}))
    assert found.status is CheckStatus.WARN and "host keys" in found.found
    config.write_text("Host login\n  Prot 22\n")
    found = await laptop_checks.ssh_config(scene(project, **{"cluster.ssh_config": str(config)}))
    assert found.status is CheckStatus.FAIL and "line 2" in found.found


async def test_the_editors_port(project: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        taken.listen()
        at = scene(project, **{"debug.port": port})
        found = await laptop_checks.editor_port(at)
        assert found.status is CheckStatus.WARN and str(port) in found.found
        assert "next" in found.found
        at.status = {"debug_port": port + 1}
        assert (await laptop_checks.editor_port(at)).status is CheckStatus.OK
    at.status = None
    assert (await laptop_checks.editor_port(at)).status is CheckStatus.OK


async def test_the_editors_files(project: Path) -> None:
    at = scene(project)
    assert (await laptop_checks.editor_files(at)).status is CheckStatus.SKIP
    (project / ".vscode").mkdir()
    (project / ".vscode" / "launch.json").write_text('{ // mine\n "configurations": [] }')
    found = await laptop_checks.editor_files(at)
    assert found.status is CheckStatus.WARN and "tk: attach" in found.found
    vscode.apply(
        vscode.plan(project, port=40056, remote_root="/r", just_my_code=True), within=project
    )
    assert (await laptop_checks.editor_files(at)).status is CheckStatus.OK
    found = await laptop_checks.editor_files(scene(project, **{"debug.port": 41000}))
    assert found.status is CheckStatus.WARN and "40056" in found.found and "41000" in found.found
    at.status = {"debug_port": 40057}
    found = await laptop_checks.editor_files(at)
    assert found.status is CheckStatus.WARN and "40057" in found.found


async def test_rsync_of_macos(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "bin" / "rsync"
    fake.parent.mkdir()
    fake.write_text(
        "#!/bin/sh\necho 'openrsync: protocol version 29'\necho 'rsync version 2.6.9'\n"
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    found = await laptop_checks.rsync(scene(project))
    assert found.status is CheckStatus.WARN and "only openrsync" in found.found


async def test_settings_that_can_not_be_read(project: Path) -> None:
    paths = SessionPaths("0", Path("/tmp/tk-none/0"), project)
    at = CheckContext(
        ConfigError("bad", hint="mend"), paths, project_dir=project, make_link=make_link
    )
    with pytest.raises(ConfigError):
        await laptop_checks.config(at)
    with pytest.raises(ConfigError, match="no login host"):
        await laptop_checks.config(
            CheckContext(
                assemble(project, None, cwd=project, overrides={}, environ={}),
                paths,
                project_dir=project,
                make_link=make_link,
            )
        )


async def test_what_tells_of_saved_files(project: Path) -> None:
    found = await laptop_checks.file_events(scene(project))
    assert found.status is CheckStatus.OK and "watchdog" in found.found
