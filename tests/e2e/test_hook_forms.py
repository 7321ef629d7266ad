"""A rank's program under a real debugger is the program it would have been without."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.hook_rig import Node, node

RANK = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}

#: What a program can tell of how it was started.
PROGRAM = """\
import json, os, sys
facts = {
    "argv": sys.argv,
    "flags": [sys.flags.optimize, sys.flags.dont_write_bytecode, sys.flags.dev_mode],
    "warnings": sys.warnoptions,
    "name": __name__,
    "beside": __import__("beside").WORD,
    "executable": sys.executable,
    "variables": sorted(name for name in os.environ if name.startswith(("DEBUGPY_E", "PYTHON"))),
    "pid": os.getpid(),
}
print(json.dumps(facts))
"""
LAST_LINE = len(PROGRAM.splitlines())


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Node]:
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "train.py").write_text(PROGRAM)
    for directory in (tmp_path, package):
        (directory / "beside.py").write_text(f"WORD = {directory.name!r}\n")
    async with node(tmp_path) as one:
        yield one


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        (["-u", "pkg/train.py", "--lr", "1"], None),
        (["-uBO", "-Wignore", "-X", "dev", "pkg/train.py"], None),
        (["-m", "pkg.train", "a"], None),
        (["-Bm", "pkg.train"], None),
        (["-m", "debugpy", "--listen", "5678", "--wait-for-client", "pkg/train.py", "a"],
         ["pkg/train.py", "a"]),
        (["-m", "ptvsd", "--host", "0.0.0.0", "--port", "5678", "--wait", "-m", "pkg.train"],
         ["-m", "pkg.train"]),
    ],
)  # fmt: skip
async def test_the_program_is_what_it_was(
    here: Node, given: list[str], plain: list[str] | None
) -> None:
    extra = {"DEBUGPY_EXTRA_ARGV": "--connect 127.0.0.1:1 --wait-for-client"}
    job = await here.run(sys.executable, *given, **RANK, **extra)
    target = await here.target(0)
    assert target.identity.pid == job.process.pid
    editor = await target.editor({str(here.directory / "pkg" / "train.py"): [LAST_LINE]})
    thread, frame = await editor.stopped()
    assert await editor.evaluate("facts['pid']", frame) == str(job.process.pid)
    await editor.finish(thread)
    debugged = await job.ended()
    free = await here.run(sys.executable, *(plain or given), contract={"only": []}, **RANK)
    ended = await free.ended()
    assert (debugged.code, ended.code) == (0, 0), debugged.output + ended.output
    texts = [
        one.output.replace(str(process.process.pid), "PID")
        for one, process in ((debugged, job), (ended, free))
    ]
    assert texts[0] == texts[1]


CODE = "import os, sys\nword = sys.argv[1:]\nbreakpoint()\nos.write(1, repr(word).encode())\n"


async def test_code_on_the_command_line(here: Node) -> None:
    job = await here.run(sys.executable, "-c", CODE, "a b", **RANK)
    editor = await (await here.target(0)).editor({})
    thread, frame = await editor.stopped()
    assert await editor.evaluate("word", frame) == "['a b']"
    await editor.finish(thread)
    ended = await job.ended()
    assert (ended.code, ended.output) == (0, "['a b']")


#: A launcher of the person's own: sets each worker's rank, then spawns it.
SPAWNER = """\
import multiprocessing, os

def work(word):
    os.write(1, f"rank {os.environ['RANK']} {word}\\n".encode())

if __name__ == "__main__":
    context = multiprocessing.get_context("METHOD")
    workers = []
    for rank in range(2):
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2")
        workers.append(context.Process(target=work, args=("works",)))
        workers[-1].start()
    for worker in workers:
        worker.join()
    print([worker.exitcode for worker in workers])
"""


async def test_spawned_workers_with_ranks_of_their_own(here: Node) -> None:
    program = here.directory / "spawner.py"
    program.write_text(SPAWNER.replace("METHOD", "spawn"))
    job = await here.run(sys.executable, "spawner.py")

    async def through(rank: int) -> str:
        editor = await (await here.target(rank)).editor({str(program): [4]})
        thread, frame = await editor.stopped()
        word = await editor.evaluate("word", frame)
        await editor.finish(thread)
        return word

    assert await asyncio.gather(through(0), through(1)) == ["'works'"] * 2
    ended = await job.ended()
    assert sorted(ended.output.splitlines()) == ["[0, 0]", "rank 0 works", "rank 1 works"]
    # Neither the launcher nor multiprocessing's resource tracker is a rank.
    assert len(here.targets) == 2


@pytest.mark.parametrize("method", ["fork", "forkserver"])
async def test_what_is_forked_runs_free(here: Node, method: str) -> None:
    (here.directory / "spawner.py").write_text(SPAWNER.replace("METHOD", method))
    job = await here.run(sys.executable, "spawner.py")
    ended = await job.ended()
    assert (ended.code, ended.output.splitlines()[-1]) == (0, "[0, 0]"), ended.output
    assert here.targets == []


async def test_a_ranks_children_are_the_debuggers(here: Node) -> None:
    program = here.directory / "parent.py"
    program.write_text(
        "import os, subprocess, sys\n"
        'code = \'import os; print(os.environ["RANK"], "PYTHONPATH" in os.environ)\'\n'
        "done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)\n"
        "os.write(1, done.stdout.encode())\n"
    )
    job = await here.run(sys.executable, "parent.py", **RANK, contract={"only": []})
    ended = await job.ended()
    assert (ended.code, ended.output) == (0, "0 False\n")
    assert here.targets == []
