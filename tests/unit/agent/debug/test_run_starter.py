"""Warm starts: what a fork server has imported, when it is made anew, and when it is refused."""

from __future__ import annotations

import ast
import asyncio
import json
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

from tests.unit.agent.loop_rig import LoopRig, loop_rig

#: Tells which process imported it.
SLOW = "import os\nimported_by = os.getpid()\nvalue = 1\n"
MAIN = "import slow\nprint('value', slow.value, slow.imported_by)\n"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with a program, and a module to be preloaded."""
    (tmp_path / "main.py").write_text(MAIN)
    (tmp_path / "slow.py").write_text(SLOW)
    return tmp_path


async def server_of(rig: LoopRig, number: int) -> int:
    """The pid of the process that had imported `slow` for this run."""
    stop = await rig.f5(number, 2)
    pid = int(await stop.evaluate("slow.imported_by"))
    await stop.finish()
    await rig.event("ended", generation=number)
    return pid


async def test_a_preloaded_module_is_imported_once_for_all_runs(place: Path) -> None:
    async with loop_rig(place, preload=["slow"]) as rig:
        server = await rig.event("fork-server")
        assert set(server["imports"]) == {"slow"} and server["rss_bytes"] > 2**20
        assert (await rig.event("preloading"))["modules"] == ["slow"]
        assert {await server_of(rig, number) for number in (1, 2, 3)} == {server["pid"]}


@pytest.mark.parametrize("standby", [True, False])
async def test_a_preloaded_file_that_changes_is_read_anew_and_told(
    place: Path, standby: bool
) -> None:
    async with loop_rig(place, preload=["slow"], standby=standby) as rig:
        first = await rig.event("fork-server")
        await rig.event("armed", generation=1)
        assert await rig.loop.refresh() == []
        (place / "slow.py").write_text(SLOW + "value = 2\n")
        # As before each F5: what no editor has yet is made anew.
        assert await rig.loop.refresh() == [1]
        assert (await rig.event("stale"))["why"].startswith(f"{place}/slow.py has changed")
        await rig.event("ended", generation=1)
        stop = await rig.f5(2, 2)
        assert await stop.evaluate("slow.value") == "2"
        assert await stop.evaluate("slow.imported_by") != str(first["pid"])
        await stop.finish()


async def test_a_change_while_one_runs_spares_that_one(place: Path) -> None:
    async with loop_rig(place, preload=["slow"]) as rig:
        stop = await rig.f5(1, 2)
        await rig.event("standby")
        (place / "slow.py").write_text(SLOW + "value = 2\n")
        assert await rig.loop.refresh() == [2], "not the one in front: it goes on"
        await rig.event("ended", generation=2, ahead=True)
        assert await stop.evaluate("slow.value") == "1"
        await stop.finish()
        stop = await rig.f5(3, 2)
        assert await stop.evaluate("slow.value") == "2"


#: Edits another module while modules are imported.
EDITS = """\
import pathlib
if pathlib.Path("edits").exists():
    pathlib.Path("slow.py").write_text("import os; imported_by = os.getpid(); value = 5\\n")
"""


async def test_a_file_that_is_edited_while_others_are_still_imported_counts(place: Path) -> None:
    (place / "edits").touch()
    (place / "later.py").write_text(EDITS + 'pathlib.Path("edits").unlink(missing_ok=True)\n')
    async with loop_rig(place, preload=["slow", "later"]) as rig:
        why = (await rig.event("stale"))["why"]
        assert why == f"{place}/slow.py has changed since it was imported"
        stop = await rig.f5(1, 2)
        assert await stop.evaluate("slow.value") == "5"
        assert len(rig.told("stale")) == 1 and not rig.told("no-standby")


async def test_imports_that_change_each_other_are_given_up(place: Path) -> None:
    (place / "edits").touch()
    (place / "later.py").write_text(EDITS)
    async with loop_rig(place, preload=["slow", "later"]) as rig:
        assert "slow.py has changed" in (await rig.event("no-standby"))["why"]
        assert len(rig.told("fork-server")) == 3
        assert await server_of(rig, 1) == rig.come[1][1].pid


async def test_asking_twice_at_once_while_the_next_is_made_is_no_accident(place: Path) -> None:
    async with loop_rig(place, preload=["slow"]) as rig:
        for number in (1, 2, 3):
            front = (await rig.event("armed"))["generation"]
            rig.events.clear()
            stop = await rig.f5(front, 2)
            # The next one is about to be forked, from what is being thrown away.
            (place / "slow.py").write_text(SLOW + f"value = {number}\n")
            answers = await asyncio.gather(*(rig.loop.refresh() for _ in range(4)))
            assert sum(bool(ended) for ended in answers) <= 1
            rig.events.clear()
            await stop.finish()
            assert (await rig.event("ended"))["generation"] == front
        await rig.event("armed")


async def test_a_module_that_comes_in_front_of_a_preloaded_one_counts(place: Path) -> None:
    """As after an installation into another place of the search path."""
    library = place / "library"
    library.mkdir()
    (place / "slow.py").rename(library / "slow.py")
    async with loop_rig(place, preload=["slow"], env={"PYTHONPATH": str(library)}) as rig:
        await rig.event("armed", generation=1)
        assert await rig.loop.refresh() == []
        (place / "slow.py").write_text(SLOW + "value = 3\n")
        assert await rig.loop.refresh() == [1]
        why = (await rig.event("stale"))["why"]
        assert why == "slow is found elsewhere than when it was imported"


def environment(where: Path) -> Path:
    """A virtual environment that sees debugpy."""
    venv.create(where, symlinks=True)
    library = next((where / "lib").glob("python*/site-packages"))
    own = next(path for path in sys.path if path.endswith("site-packages"))
    (library / "ours.pth").write_text(own)
    return where


@pytest.mark.parametrize("preload", [[], ["slow"]])
async def test_another_interpreter_or_environment_behind_the_same_name_counts(
    place: Path, preload: list[str]
) -> None:
    here, other = environment(place / "one"), environment(place / "other")
    active = place / "active"
    active.symlink_to(here)
    python = [str(active / "bin" / "python")]
    (place / "main.py").write_text("import os, sys\nprint('here')\n")
    async with loop_rig(place, python=python, preload=preload) as rig:
        await rig.run_through(1)
        await rig.event("starting", generation=2)
        # As `conda` and deployments do it; both environments have the same base.
        active.unlink()
        active.symlink_to(other)
        if preload:
            # Asked before each F5: what was armed already is replaced.
            assert await rig.loop.refresh() == [2]
            assert "pyvenv.cfg has changed" in (await rig.event("stale"))["why"]
            await rig.event("ended", generation=2)
        # Without that the one that stood by, and the next, may still be of the old one.
        for number in (3, 4) if preload else (2, 3, 4):
            await rig.run_through(number)
        assert any("pyvenv.cfg has changed" in event["why"] for event in rig.told("stale"))
        assert len(rig.told("fork-server")) == 2


@pytest.mark.parametrize(
    ("module", "why"),
    [
        (
            "import threading, time\n"
            "threading.Thread(target=time.sleep, args=(1000,), name='pump', daemon=True).start()\n",
            "an import has started a thread (pump)",
        ),
        (
            "import _thread, time\n_thread.start_new_thread(time.sleep, (1000,))\n",
            "an import has started 1 thread(s) that a fork would lose",
        ),
    ],
)
async def test_a_module_that_starts_a_thread_is_told_and_each_run_starts_anew(
    place: Path, module: str, why: str
) -> None:
    (place / "slow.py").write_text(SLOW + module)
    async with loop_rig(place, preload=["slow"]) as rig:
        assert (await rig.event("no-standby"))["why"] == why
        first, second = await server_of(rig, 1), await server_of(rig, 2)
        assert first == rig.come[1][1].pid and second == rig.come[2][1].pid
        # The server that was no good is gone, and no other is tried.
        assert len(rig.told("fork-server")) == len(rig.told("no-standby")) == 1
        assert not rig.told("standby")


async def test_a_live_gpu_is_told(place: Path) -> None:
    (place / "torch").mkdir()
    (place / "torch" / "__init__.py").write_text("from torch import cuda\n")
    (place / "torch" / "cuda.py").write_text("def is_initialized():\n    return True\n")
    async with loop_rig(place, preload=["torch"]) as rig:
        assert (await rig.event("no-standby"))["why"] == "an import has initialised CUDA"
        assert await server_of(rig, 1) == rig.come[1][1].pid


async def test_a_cuda_that_sleeps_is_forked(place: Path) -> None:
    (place / "torch").mkdir()
    (place / "torch" / "__init__.py").write_text("from torch import cuda\n")
    (place / "torch" / "cuda.py").write_text("def is_initialized():\n    return False\n")
    async with loop_rig(place, preload=["torch", "slow"]) as rig:
        assert await server_of(rig, 1) == (await rig.event("fork-server"))["pid"]


@pytest.mark.parametrize(
    ("module", "error"),
    [
        (None, "ModuleNotFoundError: No module named 'slow'"),
        ("1/0\n", "ZeroDivisionError: division by zero"),
        ("import sys; sys.exit(3)\n", "SystemExit: 3"),
        ("def f(:\n", "SyntaxError"),
        ("import os; os._exit(5)\n", "its import ended the interpreter: exit code 5"),
        ("import os; os.abort()\n", "its import ended the interpreter: signal SIGABRT"),
    ],
)
async def test_a_module_that_can_not_be_imported_is_named_and_tried_slowly(
    place: Path, module: str | None, error: str
) -> None:
    (place / "slow.py").unlink()
    if module is not None:
        (place / "slow.py").write_text(module)
    async with loop_rig(place, preload=["slow"]) as rig:
        ended = await rig.event("ended")
        assert ended["error"].startswith(f"--preload slow: {error}")
        assert (ended["why"], ended["generation"]) == ("not started", 1)
        assert (await rig.event("waiting"))["delay_s"] >= 0.5
        assert rig.processes() == []
        # Mended, it goes on at once when asked to.
        (place / "slow.py").write_text(SLOW)
        await rig.loop.restart("ready")
        again = await rig.event("armed")
        await rig.run_through(again["generation"])


async def test_a_preload_that_hangs_can_be_stopped(place: Path) -> None:
    (place / "slow.py").write_text("print('hangs', flush=True)\nimport time\ntime.sleep(1000)\n")
    async with loop_rig(place, preload=["slow"]) as rig:
        await rig.output("hangs")
        await rig.stop()
        assert rig.processes() == []


async def test_the_environment_is_the_loops_and_what_imports_make_of_it(place: Path) -> None:
    """As when the program itself had imported the module."""
    (place / "slow.py").write_text(
        SLOW + "os.environ['SET'] = 'yes'\ndel os.environ['GONE']\nos.chdir('/')\n"
    )
    env = {"MINE": "here", "GONE": "soon"}
    async with loop_rig(place, preload=["slow"], env=env) as rig:
        stop = await rig.f5(1, 2)
        told = await json_of(stop, "[slow.os.getcwd(), dict(slow.os.environ)]")
        cwd, environ = json.loads(told)
        assert cwd == str(place)
        assert (environ["MINE"], environ["SET"], environ.get("GONE")) == ("here", "yes", None)


async def json_of(stop: Any, expression: str) -> str:
    """An expression's value, as the editor gets it."""
    return str(ast.literal_eval(await stop.evaluate(f"__import__('json').dumps({expression})")))


DRAW = """\
import random
drawn = [random.random(), int.from_bytes(random.randbytes(4), "big")]
try:
    import numpy
    drawn += [float(numpy.random.rand()), float(numpy.random.default_rng().random())]
except ImportError:
    pass
print("drawn", *drawn, flush=True)
"""


@pytest.mark.parametrize("modules", [["random"], ["random", "numpy"]])
async def test_no_two_runs_draw_the_same_numbers(place: Path, modules: list[str]) -> None:
    if "numpy" in modules:
        pytest.importorskip("numpy", reason="numpy is not installed: scripts/setup --torch")
    (place / "main.py").write_text(DRAW)
    async with loop_rig(place, preload=modules) as rig:
        for number in (1, 2, 3):
            await rig.run_through(number)
        rows = [line.split()[1:] for line in rig.out.decode().splitlines() if "drawn" in line]
    assert len(rows) == 3
    columns = list(zip(*rows, strict=True))
    assert len(columns) >= 2 and all(len(set(column)) == 3 for column in columns)
