"""`tk simulate --in docker`: a real engine holds the run, and no container stays."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.docker.engine import (
    BASE_IMAGE,
    Docker,
    docker_engine,
    provide_base_image,
    why_no_docker,
)
from tests.support.places import short_dir
from tests.support.terminal import Terminal
from tunnelkit.errors import ExitCode

pytestmark = [
    pytest.mark.slow,
    pytest.mark.docker,
    pytest.mark.timeout(600),
    pytest.mark.asyncio(loop_scope="module"),
]

#: tail keeps a line that never ends in memory.
SCRIPT = (
    "#!/bin/sh\n#SBATCH --mem=60 -c 1\necho $SLURM_MEM_PER_NODE in $PWD with $1\n"
    "head -c 300000000 /dev/zero | tail >/dev/null; echo after $?\nexit 9\n"
)


@pytest.fixture(scope="module")
def engine() -> Iterator[Docker]:
    if reason := why_no_docker():
        pytest.skip(reason)
    with docker_engine() as docker:
        provide_base_image(docker)
        yield docker


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(engine: Docker) -> AsyncIterator[Path]:
    base = short_dir("s")
    (base / "job.sh").write_text(SCRIPT)
    (base / "waits.sh").write_text("#!/bin/sh\necho up\nexec tail -f /dev/null\n")
    yield base
    shutil.rmtree(base)


def environ(engine: Docker, place: Path) -> dict[str, str]:
    host = [word for word in engine.docker if word.startswith("unix://")]
    own = {
        "TMPDIR": str(place),
        "TK_CONFIG_DIR": str(place / "c"),
        "TK_STATE_DIR": str(place / "s"),
    }
    return {**os.environ, **own, **({"DOCKER_HOST": host[0]} if host else {})}


async def start(engine: Docker, place: Path, *words: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        str(Path(sys.executable).parent / "tk"),
        *("simulate", "--no-check", "--in", "docker", *words),
        cwd=place,
        env=environ(engine, place),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


def containers(engine: Docker) -> str:
    return engine.run("ps", "--all", "--quiet", "--filter", "name=tk-simulate-").strip()


async def test_the_engine_kills_at_the_limit(engine: Docker, place: Path) -> None:
    child = await start(engine, place, "--image", BASE_IMAGE, "job.sh", "an arg")
    out = (await child.communicate())[0].decode()
    assert f"60 in {place} with an arg" in out, out
    assert "it would have been killed for memory: it used 60 MB" in out, out
    assert child.returncode == 9, out
    assert not containers(engine)


async def test_ended_in_the_middle_no_container_stays(engine: Docker, place: Path) -> None:
    child = await start(engine, place, "--image", BASE_IMAGE, "waits.sh")
    terminal = Terminal(child)
    await terminal.line("^up")
    child.send_signal(signal.SIGINT)
    assert await child.wait() == ExitCode.INTERRUPTED
    assert not containers(engine)
    await terminal.close()


async def test_no_image_is_pulled(engine: Docker, place: Path) -> None:
    child = await start(engine, place, "--image", "nowhere.invalid/x:1", "waits.sh")
    out = (await child.communicate())[0].decode()
    assert child.returncode == ExitCode.MISSING_PROGRAM and "is not here: docker pull" in out, out
