"""Hosts, keys and requests that are wrong: one clear line, the exit code, and nothing left."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.ports import free_port
from tests.support.refusals import OPTION, refused
from tests.support.tkrig import Project
from tunnelkit.errors import ExitCode

pytestmark = pytest.mark.slow


@pytest.fixture
def other_ssh_config(project: Project) -> Path:
    """A copy of the lab's ssh_config, to be spoiled."""
    copy = project.base / "ssh_config"
    shutil.copy(project.lab.ssh_config, copy)
    return copy


def replace_option(path: Path, name: str, value: object) -> None:
    lines = path.read_text().splitlines()
    spoiled = [f"  {name} {value}" if line.split()[:1] == [name] else line for line in lines]
    assert spoiled != lines
    path.write_text("\n".join(spoiled) + "\n")


def new_key(path: Path) -> str:
    """Make a key pair that nobody knows; return its public half."""
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)],
        check=True,
        capture_output=True,
    )
    return path.with_suffix(".pub").read_text()


# -- hosts and keys -------------------------------------------------------


async def test_an_unknown_host(project: Project) -> None:
    await refused(
        project,
        "up",
        "--login",
        "nosuchhost.invalid",
        code=ExitCode.CONNECTION,
        says="there is no host called nosuchhost.invalid",
    )
    # It never got to a cluster, so there is nothing to end either.
    await refused(project, "down", code=ExitCode.NO_SESSION, says="no session is up")


async def test_a_host_where_nobody_listens(project: Project, other_ssh_config: Path) -> None:
    port = free_port()
    text = other_ssh_config.read_text().splitlines()
    first = next(index for index, line in enumerate(text) if line.split()[:1] == ["Port"])
    text[first] = f"  Port {port}"
    other_ssh_config.write_text("\n".join(text) + "\n")
    await refused(
        project,
        "up",
        code=ExitCode.CONNECTION,
        says="login refused the connection",
        TK_CLUSTER_SSH_CONFIG=str(other_ssh_config),
    )


async def test_a_key_that_the_host_does_not_know(project: Project, other_ssh_config: Path) -> None:
    new_key(project.base / "key")
    replace_option(other_ssh_config, "IdentityFile", project.base / "key")
    line = await refused(
        project,
        "up",
        code=ExitCode.CONNECTION,
        says="login did not let us in",
        TK_CLUSTER_SSH_CONFIG=str(other_ssh_config),
    )
    assert "IdentityFile" in line


async def test_a_host_key_that_has_changed(project: Project, other_ssh_config: Path) -> None:
    public = " ".join(new_key(project.base / "key").split()[:2])
    known = project.base / "known_hosts"
    lines = (project.lab.ssh_config.parent / "ssh" / "known_hosts").read_text().splitlines()
    known.write_text("".join(f"{line.split()[0]} {public}\n" for line in lines))
    replace_option(other_ssh_config, "UserKnownHostsFile", known)
    line = await refused(
        project,
        "up",
        code=ExitCode.HOST_KEY,
        says="the host key of login",
        TK_CLUSTER_SSH_CONFIG=str(other_ssh_config),
    )
    assert line.count("SHA256:") == 2, "both fingerprints are to be compared"


async def test_a_host_key_that_is_not_known(project: Project, other_ssh_config: Path) -> None:
    replace_option(other_ssh_config, "UserKnownHostsFile", project.base / "known_hosts")
    await refused(
        project,
        "up",
        code=ExitCode.HOST_KEY,
        says="is not known",
        TK_CLUSTER_SSH_CONFIG=str(other_ssh_config),
    )
    assert not (project.base / "known_hosts").exists()


@pytest.mark.parametrize("where", ["node", "flag", "login", "jump"])
async def test_an_option_in_place_of_a_host_name(project: Project, where: str) -> None:
    if where == "node":
        args, code = ("up", "--", OPTION), ExitCode.USAGE
    elif where == "flag":
        args, code = ("up", f"--login={OPTION}"), ExitCode.CONFIG
    else:
        args, code = ("up",), ExitCode.CONFIG
        value = f"{where} = {'[' * (where == 'jump')}'{OPTION}'{']' * (where == 'jump')}"
        project.configure(f"[cluster]\n{value}\n")
    await refused(project, *args, code=code, says=f"{OPTION!r} is not a")
    assert not Path("/tmp/tk-was-here").exists()


async def test_a_node_that_is_read_as_an_option(project: Project) -> None:
    await refused(project, "up", OPTION, code=ExitCode.USAGE, says="no such option: -o")


# -- what the cluster can't give ------------------------------------------


async def test_no_such_node(project: Project) -> None:
    line = await refused(
        project, "up", "node9", code=ExitCode.SCHEDULER, says="Invalid node name specified"
    )
    assert "sinfo -N" in line
    # A node that was refused is not asked for again.
    status = await project.up()
    assert status["wanted_node"] is None


async def test_too_many_gpus(project: Project) -> None:
    await refused(
        project,
        "up",
        "node1",
        "--gpus",
        "9",
        code=ExitCode.SCHEDULER,
        says="no node has that many GPUs",
    )


async def test_more_cpus_than_any_node_has(project: Project) -> None:
    """Slurm takes such a job and lets it wait for ever; tk doesn't."""
    await refused(project, "up", "--cpus", "99", code=ExitCode.ALLOCATION, says="can never start")


async def test_no_such_partition(project: Project) -> None:
    await refused(
        project,
        "up",
        "--partition",
        "nosuch",
        code=ExitCode.SCHEDULER,
        says="invalid partition specified: nosuch",
    )
