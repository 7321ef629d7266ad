"""`tk loop --reload`: a checkout is one generation on the node, and one restart of the loop."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from tests.support.tkrig import Project

pytestmark = pytest.mark.slow

FILES = 2_000
#: Imports all of it and says which revision that was; then it waits.
WEB = f"""\
import time
from pathlib import Path
seen = {{Path("pkg", f"m{{n}}.py").read_text() for n in range({FILES})}}
print("serving", *sorted(word.strip() for word in seen), flush=True)
time.sleep(600)
"""


def git(root: Path, *words: str) -> None:
    identity = ("-c", "user.name=x", "-c", "user.email=x@localhost")
    subprocess.run(["git", *identity, *words], cwd=root, check=True, capture_output=True)


async def test_a_checkout_is_one_restart(project: Project) -> None:
    project.write("web.py", WEB)
    git(project.dir, "init", "-q", "-b", "one")
    for revision in ("one", "two"):
        for number in range(FILES):
            project.write(f"pkg/m{number}.py", f"{revision}\n")
        if revision == "two":
            git(project.dir, "checkout", "-q", "-b", "two")
        git(project.dir, "add", ".")
        git(project.dir, "commit", "-q", "-m", revision)
    await project.up("node1", "--cpus", "1")
    terminal = await project.loop("--reload", "sh", "-c", "exec python3 web.py", armed=False)
    await terminal.line("serving two")
    for revision in ("one", "two", "one"):
        before = len(terminal.text)
        await asyncio.to_thread(git, project.dir, "checkout", "-q", revision)
        await terminal.line(f"serving {revision}")
        await project.tk("sync", code=0)
        since = terminal.text[before:]
        # Never half of it, and not twice.
        assert since.count("serving") == 1, since
        assert since.count("files changed") == 1, since
