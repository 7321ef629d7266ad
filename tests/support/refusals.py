"""Commands that must be refused: one line, the documented exit code, nothing left."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.support.tkrig import _TK, PATIENCE_S, Done, Project
from tunnelkit.errors import ExitCode

#: A host's name that ssh would take for an option, and run.
OPTION = "-oProxyCommand=touch /tmp/tk-was-here"


async def run(project: Project, *args: str, cwd: Path | None = None, **env: str) -> Done:
    """`tk ARGS` with nobody at a terminal."""
    process = await asyncio.create_subprocess_exec(
        str(_TK),
        *args,
        cwd=cwd or project.dir,
        env={**project.env, **env},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(PATIENCE_S):
        out, err = await process.communicate()
    assert process.returncode is not None
    return Done(args, process.returncode, out.decode(), err.decode())


async def refused(
    project: Project, *args: str, code: ExitCode, says: str, cwd: Path | None = None, **env: str
) -> str:
    """Run a command that must be refused; return its one line.

    Progress (indented, only of `tk up`) may stand before it; when the command has ended,
    nothing of it is there.
    """
    done = await run(project, *args, cwd=cwd, **env)
    assert done.code == code, f"{done}\n{project.session_log()}"
    lines = [line for line in done.err.splitlines() if not line.startswith("  ")]
    assert len(lines) == 1 and lines[0].startswith("tk: "), done
    assert "Traceback" not in done.err and not done.out, done
    assert says in lines[0], lines[0]
    assert " — " in lines[0], f"no hint: {lines[0]}"
    await project.nothing_left(deadline_s=10.0)
    return lines[0]
