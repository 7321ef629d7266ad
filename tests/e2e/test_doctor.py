"""`tk doctor` on the lab: all is well, and each state in which something is not."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.e2e.test_bad_places import small_file_system
from tests.support.tkrig import Project
from tunnelkit import lab as tk_lab
from tunnelkit.errors import ExitCode
from tunnelkit.lab import LabInfo
from tunnelkit.lab.layout import Layout, write_private

Checks = dict[str, dict[str, Any]]


async def doctor(project: Project, *args: str, code: int | None = 0) -> Checks:
    """The checks by name."""
    report = (await project.tk("doctor", "--json", *args, code=code)).json
    failed = [one["name"] for one in report["checks"] if one["status"] == "fail"]
    assert report["ok"] is not bool(failed)
    for one in report["checks"]:
        assert bool(one["fix"]) == (one["status"] in ("warn", "fail")), one
    return {one["name"]: one for one in report["checks"]}


@contextmanager
def sshd_says(lab: LabInfo, before: str, after: str) -> Iterator[None]:
    """The login host's sshd with another line in its configuration, then as it was."""
    path = Layout(lab.dir).ssh / "sshd_login"
    whole = path.read_text()
    assert before in whole

    def write(text: str) -> None:
        tk_lab.stop_daemon("sshd-login", lab.dir)
        write_private(path, text)
        tk_lab.start_daemon("sshd-login", lab.dir)

    write(whole.replace(before, after))
    try:
        yield
    finally:
        write(whole)


def is_bash() -> bool:
    return os.path.basename(pwd.getpwuid(os.getuid()).pw_shell) == "bash"


async def test_with_a_session_its_connection_is_used(project: Project) -> None:
    await project.up("node1")
    await project.tk("vscode")
    connections = len(project.sshd_connections())
    checks = await doctor(project)
    assert {name: one["found"] for name, one in checks.items() if one["status"] != "ok"} == {}
    assert checks["connection"]["data"]["by_session"] is True
    assert "node1 allows it" in checks["node-ssh"]["found"]
    assert "has debugpy 1." in checks["debugpy"]["found"]
    assert checks["scheduler"]["data"]["name"] == "slurm"
    assert "end to end" in checks["forwards"]["found"]
    assert len(project.sshd_connections()) == connections, "the doctor has logged in once more"
    assert (await project.status())["forwards"] == []
    told = (await project.tk("doctor")).out
    assert "nothing failed" in told.splitlines()[-1] and "fix:" not in told

    daemon = (await project.status())["pid"]
    os.kill(daemon, signal.SIGSTOP)
    try:
        checks = await doctor(project, code=ExitCode.CHECK_FAILED)
    finally:
        os.kill(daemon, signal.SIGCONT)
    assert "did not answer" in checks["session"]["found"]
    assert checks["connection"]["found"] == "not checked: session failed"


async def test_without_a_session_it_connects_once_and_leaves_nothing(project: Project) -> None:
    checks = await doctor(project)
    assert checks["connection"]["data"]["by_session"] is False
    assert checks["node-ssh"]["status"] == checks["debugpy"]["status"] == "skip"
    assert "tk up" in checks["debugpy"]["found"]
    assert checks["home"]["data"]["path"] == str(project.lab.home)
    assert abs(checks["clock"]["data"]["ahead_s"]) < 60
    assert not list((project.lab.home / ".cache" / "tunnelkit").glob(".doctor.*"))
    await project.nothing_left()


@pytest.mark.skipif(not is_bash(), reason="this account's login shell is not bash")
async def test_a_login_shell_that_talks(project: Project) -> None:
    bashrc = project.lab.home / ".bashrc"
    before = bashrc.read_text()
    bashrc.write_text(before + "echo 'Welcome, dear user'\n")
    try:
        checks = await doctor(project)
        told = await project.tk("doctor")
    finally:
        bashrc.write_text(before)
    assert checks["login-shell"]["status"] == "warn"
    assert "Welcome, dear user" in checks["login-shell"]["found"]
    # What it prints does not confuse any other check.
    others = [one["name"] for one in checks.values() if one["status"] in ("warn", "fail")]
    assert others == ["login-shell"]
    assert "fix: let ~/.bashrc print only where" in told.out


@pytest.mark.skipif(not is_bash(), reason="this account's login shell is not bash")
async def test_a_session_through_a_login_shell_that_talks(project: Project) -> None:
    """On the login host and on the node, whose home is the same."""
    bashrc = project.lab.home / ".bashrc"
    before = bashrc.read_text()
    bashrc.write_text(before + "echo 'Welcome, dear user'\nstty -a\n")
    big = project.dir / "big.bin"
    big.write_bytes(os.urandom(9 << 20))  # more than the agent carries
    try:
        up = await project.tk("up", "node1")
        assert "~/.bashrc" in up.out + up.err and "dear user" in up.out + up.err
        await project.up("node1")
        assert project.remote("big.bin").read_bytes() == big.read_bytes()
        assert (await project.tk("run", "echo", "plain")).out == "plain\n"
        project.write("new.py", "print(1)\n")
        await project.tk("sync", "--wait")
        assert project.remote("new.py").exists()
        project.remote("made").write_bytes(bytes(1 << 20))
        await project.tk("pull", "made")
        assert (project.dir / "made").stat().st_size == 1 << 20
        assert (await doctor(project))["login-shell"]["status"] == "warn"
        await project.tk("down")
    finally:
        bashrc.write_text(before)


async def test_forwards_are_not_allowed(project: Project) -> None:
    with sshd_says(project.lab, "AllowTcpForwarding yes", "AllowTcpForwarding no"):
        checks = await doctor(project)
    assert checks["forwards"]["status"] == "warn"
    assert "its own wire" in checks["forwards"]["found"]


async def test_no_python_by_that_name(project: Project) -> None:
    project.configure('[cluster]\npython = "python9"\n')
    checks = await doctor(project, code=ExitCode.CHECK_FAILED)
    assert checks["python"]["status"] == "fail"
    assert "there is no python9" in checks["python"]["found"]
    assert checks["python"]["fix"].startswith('set [cluster] python = "/')


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
async def test_a_home_that_is_full(project: Project) -> None:
    path = project.lab.home / ".cache" / "tunnelkit"
    aside = path.with_name("tunnelkit.aside")
    path.mkdir(parents=True, exist_ok=True)
    path.rename(aside)
    path.mkdir()
    try:
        with small_file_system(project.lab, path):
            checks = await doctor(project, code=ExitCode.CHECK_FAILED)
    finally:
        shutil.rmtree(path)
        aside.rename(path)
    assert checks["home"]["status"] == "fail" and checks["home"]["data"]["kind"] == "tmpfs"
    assert "can't be written" in checks["home"]["found"]
    assert "No space left" in checks["home"]["found"]


async def test_by_the_other_link(project: Project) -> None:
    checks = await doctor(project, "--link", "paramiko")
    assert "paramiko" in checks["ssh"]["found"]
    assert checks["connection"]["status"] == "ok"
    assert "end to end" in checks["forwards"]["found"]


async def test_no_way_to_the_login_host(project: Project) -> None:
    tk_lab.reset(project.lab.dir)
    try:
        checks = await doctor(project, code=ExitCode.CHECK_FAILED)
    finally:
        tk_lab.heal(project.lab.dir)
    assert checks["connection"]["status"] == "fail"
    assert checks["forwards"]["found"] == "not checked: connection failed"
    assert checks["ssh"]["status"] == "ok"


async def test_a_mistake_in_the_settings_is_a_finding(project: Project) -> None:
    project.configure("prot = 1\n")
    checks = await doctor(project, code=ExitCode.CHECK_FAILED)
    assert checks["config"]["status"] == "fail" and "'prot'" in checks["config"]["found"]
    assert "did you mean 'port'?" in checks["config"]["fix"]
    assert checks["rsync-here"]["status"] == "ok"


async def test_what_the_scheduler_tells_is_kept_for_completion(project: Project) -> None:
    await doctor(project)
    environ = {"_TK_COMPLETE": "complete_bash", "COMP_WORDS": "tk up ", "COMP_CWORD": "2"}
    project.env.update(environ)
    try:
        offered = (await project.tk("up")).out.split()
    finally:
        for name in environ:
            del project.env[name]
    assert offered == list(project.lab.nodes)
    cache = project.base / "c" / "tunnelkit" / "names.json"
    assert cache.stat().st_mode & 0o777 == 0o600
