"""Wrong ports, places, files and words: one clear line, the exit code, and nothing left behind."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.ports import free_port
from tests.support.refusals import OPTION, refused, run
from tests.support.tkrig import _TK, Project
from tunnelkit.errors import ExitCode

pytestmark = pytest.mark.slow


@contextmanager
def taken_port() -> Iterator[int]:
    """A port that another program listens on."""
    with socket.socket() as sock:
        port = free_port()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", port))
        sock.listen()
        yield port


# -- ports ----------------------------------------------------------------


@pytest.mark.usefixtures("counted_logins")
async def test_the_port_of_a_configured_forward_is_taken(project: Project) -> None:
    with taken_port() as port:
        text = (project.dir / "tunnelkit.toml").read_text()
        (project.dir / "tunnelkit.toml").write_text(f'forwards = ["{port}:8888"]\n{text}')
        await refused(project, "up", code=ExitCode.USAGE, says=f"local port {port} is taken")


async def test_one_port_for_two_things(project: Project) -> None:
    text = (project.dir / "tunnelkit.toml").read_text()
    (project.dir / "tunnelkit.toml").write_text(f"forwards = [{project.port}]\n{text}")
    await refused(project, "up", code=ExitCode.CONFIG, says="which is the debug port")


# -- directories ----------------------------------------------------------


async def test_the_mirrors_target_is_a_file(project: Project) -> None:
    project.remote().parent.mkdir(exist_ok=True)
    target = project.remote().parent / project.dir.name
    target.write_text("mine\n")
    try:
        await refused(project, "up", code=ExitCode.MIRROR, says="can't be used on login")
        assert target.read_text() == "mine\n"
    finally:
        target.unlink()


@pytest.mark.parametrize("target", ["/", "~", "~/", "~/..", "/tmp/..", "relative"])
async def test_a_mirror_target_that_is_not_the_projects_alone(
    project: Project, target: str
) -> None:
    await refused(
        project,
        "up",
        code=ExitCode.CONFIG,
        says="bad value for mirror.remote",
        TK_MIRROR_REMOTE=target,
    )


async def test_a_file_where_a_directory_is_wanted(project: Project) -> None:
    await refused(
        project,
        "vscode",
        "--folder",
        "2.py",
        code=ExitCode.USAGE,
        says="2.py is not a directory",
        TK_MIRROR_REMOTE="/srv/x",
    )
    file = project.base / "file"
    file.touch()
    await refused(
        project,
        "up",
        code=ExitCode.CONFIG,
        says="can't make the directory",
        TK_STATE_DIR=str(file),
    )


async def test_a_current_directory_that_is_gone(project: Project) -> None:
    for words in (("up",), ("status",), ("config", "show"), ("init", "--login", "x")):
        script = 'mkdir "$0.gone" && cd "$0.gone" && rmdir "$0.gone" && shift 0 && exec "$@"'
        process = await asyncio.create_subprocess_exec(
            *("sh", "-c", script, str(project.base / "d"), str(_TK), *words),
            env=project.env,
            stderr=asyncio.subprocess.PIPE,
        )
        _, err = await process.communicate()
        assert process.returncode == ExitCode.USAGE
        assert err.decode().startswith("tk: the current directory can't be used: ")
        assert err.count(b"\n") == 1


async def test_a_runtime_directory_that_sockets_can_not_have(project: Project) -> None:
    deep = project.base / ("x" * 100)
    deep.mkdir()
    await refused(
        project,
        "up",
        code=ExitCode.CONFIG,
        says="too long for sockets",
        TK_RUNTIME_DIR=str(deep),
    )


@pytest.mark.parametrize("name", ["a\nb\"c $(touch x) 'd", "-oProxyCommand=x", "späße & co", "#"])
async def test_a_project_directory_with_a_name_of_its_own(project: Project, name: str) -> None:
    """No mistake: newlines, quotes and options in it go nowhere near a shell or a job's name."""
    odd = project.base / name
    odd.mkdir()
    shutil.copy(project.dir / "tunnelkit.toml", odd)
    (odd / "file.txt").write_text("here\n")
    before = {job.split()[0] for job in await _all_jobs(project)}
    try:
        up = await run(project, "up", "--json", cwd=odd)
        assert up.code == 0, up
        assert up.json["project"] == str(odd)
        [job] = [job for job in await _all_jobs(project) if job.split()[0] not in before]
        assert job.split(" ", 1)[1].replace("-", "").replace(".", "").replace("_", "").isalnum()
        read = await run(project, "run", "cat", "file.txt", cwd=odd)
        assert (read.code, read.out) == (0, "here\n")
        text = await run(project, "status", cwd=odd)
        assert len(text.out.splitlines()) == len([line for line in text.out.split("\n") if line])
        assert all(line.split(" ")[0] for line in text.out.splitlines()), text
        remote = Path(up.json["mirror"]["remote"])
    finally:
        down = await run(project, "down", cwd=odd)
    assert down.code == 0, down
    shutil.rmtree(remote)
    assert before == {job.split()[0] for job in await _all_jobs(project)}
    await project.nothing_left()


async def _all_jobs(project: Project) -> list[str]:
    """`ID NAME` of every job that waits or runs."""
    from tests.lab_fixtures import ssh

    said = await asyncio.to_thread(
        ssh, project.lab, "login", "squeue -h -t PENDING,RUNNING -o '%i %j'"
    )
    return said.splitlines()


# -- files and flags ------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('profile = "lab\n', "tunnelkit.toml:1:"),
        ('profile = "\udcff"\n', "not UTF-8 text"),
        ("[alocation]\ngpus = 1\n", "did you mean [allocation]?"),
        ("[allocation]\ngpu = 1\n", "did you mean 'gpus'?"),
        ('[allocation]\ngpus = "many"\n', "tunnelkit.toml:2: bad value for allocation.gpus"),
        ('[allocation]\ntime = "abc"\n', "tunnelkit.toml:2: bad value for allocation.time"),
        ("[debug]\nport = 99999\n", "tunnelkit.toml:2: bad value for debug.port"),
        ('forwards = ["x"]\n', "tunnelkit.toml:1: bad value for forwards"),
        ('profile = "nosuch"\n', "there is no cluster profile 'nosuch'"),
    ],
)
async def test_a_malformed_file(project: Project, text: str, says: str) -> None:
    (project.dir / "tunnelkit.toml").write_bytes(os.fsencode(text))
    await refused(project, "up", code=ExitCode.CONFIG, says=says)


async def test_no_login_host_at_all(project: Project) -> None:
    (project.dir / "tunnelkit.toml").write_text("")
    await refused(project, "up", code=ExitCode.CONFIG, says="tk init")


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["up", "--time", "abc"], ExitCode.CONFIG, "--time: bad value for allocation.time"),
        (["up", "--gpus", "many"], ExitCode.USAGE, "'--gpus'"),
        (["up", "--gpus", "-1"], ExitCode.CONFIG, "--gpus: bad value"),
        (["up", "--scheduler", "lsf"], ExitCode.CONFIG, "use one of: auto, slurm, pbs"),
        (["up", "node1", "node2"], ExitCode.USAGE, "unexpected extra argument"),
        (["up", "no;de"], ExitCode.USAGE, "'no;de' is not a node name"),
        (["up", "node1\n#SBATCH -n9"], ExitCode.USAGE, "is not a node name"),
        (["loop"], ExitCode.USAGE, "missing argument 'COMMAND'"),
        (["loop", "python", "-m", "debugpy"], ExitCode.USAGE, "nothing to run"),
        (["loop", "--port", "70000", "python", "2.py"], ExitCode.USAGE, "not a TCP port"),
        (["run"], ExitCode.USAGE, "missing argument 'COMMAND'"),
        (["forward", "--cancel"], ExitCode.USAGE, "no forward named"),
        (["forward", "x"], ExitCode.USAGE, "'x' is not a TCP port"),
        (["forward", "1:2:3:4"], ExitCode.USAGE, "write PORT, L:R or L:host:R"),
        (["forward", f"1:{OPTION}:3"], ExitCode.USAGE, "is not a node name"),
        (["shell"], ExitCode.USAGE, "needs a terminal"),
        (["statu"], ExitCode.USAGE, "Did you mean 'status'"),
        (["status", "--jsno"], ExitCode.USAGE, "no such option: --jsno"),
        (["ready", "--timeout", "soon"], ExitCode.USAGE, "'--timeout'"),
        (["lab", "nosuch"], ExitCode.USAGE, "no such command 'nosuch'"),
    ],
)
async def test_a_malformed_command_line(
    project: Project, words: list[str], code: ExitCode, says: str
) -> None:
    await refused(project, *words, code=code, says=says)


@pytest.mark.parametrize(
    "words",
    [
        ["status"],
        ["status", "--json"],
        ["run", "true"],
        ["loop", "python", "2.py"],
        ["ready", "--sync"],
        ["sync", "--wait"],
        ["forward", "8888"],
        ["mount", "x"],
        ["down"],
    ],
)
async def test_a_command_that_needs_a_session(project: Project, words: list[str]) -> None:
    line = await refused(
        project, *words, code=ExitCode.NO_SESSION, says="no session is up for this project"
    )
    assert "tk up" in line


async def test_logs_before_there_are_any(project: Project) -> None:
    await refused(project, "logs", code=ExitCode.NO_SESSION, says="there is no log yet")


async def test_a_project_without_a_session_beside_one_that_has_it(project: Project) -> None:
    """The other project's node and files are not meant."""
    await project.up("node1")
    other = project.base / "other"
    other.mkdir()
    shutil.copy(project.dir / "tunnelkit.toml", other)
    done = await run(project, "run", "true", cwd=other)
    assert done.code == ExitCode.NO_SESSION
    others = f"no session is up for this project, but others are: {project.dir} — "
    assert done.err.startswith(f"tk: {others}")
    done = await run(project, "down", cwd=other)
    assert done.code == ExitCode.NO_SESSION
    assert f"one is up for {project.dir} — cd {project.dir} && tk down" in done.err


async def test_a_request_that_no_scheduler_hears_is_said(project: Project) -> None:
    """The work goes to the host itself, where nothing holds it to a GPU or a time."""
    words = ("--scheduler", "none", "--gpus", "1", "--time", "1:00:00")
    done = await project.tk("up", "node1", *words)
    said = " ".join(done.err.split())
    assert "no scheduler on login: nobody is asked for gpus, time; what you start runs on" in said


async def test_the_session_of_a_directory_that_was_renamed_can_be_ended(project: Project) -> None:
    """Its job would run to its limit: no command could name it."""
    await project.up("node1")
    moved = project.dir.with_name("moved")
    project.dir.rename(moved)
    try:
        done = await run(project, "down", cwd=moved)
    finally:
        moved.rename(project.dir)
    assert done.code == 0, done
    assert f"the session of {project.dir}, which is gone, is ended; job " in done.out
    await project.nothing_left()


async def test_a_session_that_was_let_go(project: Project) -> None:
    job = (await project.up("node1"))["job"]["id"]
    assert "the job lives on" in (await project.tk("down", "--keep")).out
    done = await project.tk("run", "true", code=ExitCode.NO_SESSION)
    assert "its job may still be there — `tk up` takes it over, `tk down` ends it" in done.err
    await project.tk("down", "--keep", code=ExitCode.NO_SESSION)
    assert await project.jobs() == [f"{job} RUNNING"]
    assert f"job {job} cancelled" in (await project.tk("down")).out
    await project.nothing_left()
