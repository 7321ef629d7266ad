"""A clone whose files are called like modules of Python's and of tk's: no process of tk's own
imports one, here, on the login host or on a node, whatever directory it was started in."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from tests.hostile.repository import Clone
from tests.support.tkrig import Project

_OTHERS = (
    *("tunnelkit", "debugpy", "pydevd", "sitecustomize", "usercustomize", "typer", "click", "rich"),
    *("watchdog", "pathspec", "platformdirs", "paramiko", "sshtunnel", "textual", "prompt_toolkit"),
    *("_tunnelkit_debuggee", "tk_guard"),
)


def plant(directory: Path, ran: Path) -> None:
    """Put them there. One that is imported names itself, and its process, in a file."""
    code = f"import sys\nopen({str(ran)!r}, 'a').write(__name__ + ' ' + repr(sys.argv) + '\\n')\n"
    for name in {*sys.stdlib_module_names, *_OTHERS} - {"sys", "__future__"}:
        (directory / f"{name}.py").write_text(code)
    for name in ("tunnelkit", "debugpy", "encodings"):
        (directory / name).mkdir()
        (directory / name / "__init__.py").write_text(code)


def imported(ran: Path) -> str:
    return ran.read_text() if ran.exists() else ""


@pytest.mark.parametrize(
    "command",
    [
        *(["status"], ["up"], ["up", "--login", "127.0.0.1"], ["doctor"], ["trust", "--show"]),
        *(["vscode"], ["bugreport"], ["config", "show"], ["simulate", "--no-check", "a.sh"]),
        *(["why", "1"], ["logs"], ["help", "ports"], ["top", "--once"], ["console", "-c", "w"]),
    ],
    ids=" ".join,
)
def test_no_command_imports_a_clone_s_module(hostile_clone: Clone, command: list[str]) -> None:
    ran = hostile_clone.home / "ran"
    (hostile_clone.dir / "a.sh").write_text("#!/bin/sh\necho it ran\n")
    plant(hostile_clone.dir, ran)
    hostile_clone.tk(*command)
    assert not imported(ran)


async def test_no_process_of_a_session_imports_a_clone_s_module(project: Project) -> None:
    ran = project.base / "ran"
    plant(project.dir, ran)
    project.write("job.sh", "#!/bin/sh\n#SBATCH -o job.log\ncat tunnelkit.toml\n")
    await project.up()
    await project.tk("sync", "--wait")
    assert (project.remote() / "typing.py").exists()
    commands = [
        *(["doctor"], ["status"], ["run", "true"], ["ready"], ["logs"], ["top", "--once"]),
        *(["why", "--sample", "1"], ["ranks"], ["pull", "a"], ["auth"], ["attach", "1"]),
        *(["simulate", "--only-check", "job.sh"], ["simulate", "--no-check", "job.sh"]),
    ]
    for command in commands:
        await project.tk(*command, code=None)
        assert not imported(ran), command
    job = str((await project.tk("submit", "--json", "job.sh")).json["job"])
    while (await project.tk("why", job, "--sample", "0", "--json")).json["stage"] != "ended":
        await asyncio.sleep(0.5)
    await project.tk("down")
    assert not imported(ran)
