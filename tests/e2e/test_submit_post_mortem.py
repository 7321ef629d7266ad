"""`tk submit --post-mortem` on the lab's real Slurm: a script's Python stands at its exception."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support import processes
from tests.support.submit_rig import Case, Submitter
from tests.support.tkrig import PATIENCE_S, Project, eventually
from tunnelkit.demo.dap_client import DapClient

pytestmark = pytest.mark.slow

PYTHON = "python3"
PROGRAM = """\
import os
def collate(row):
    size = len(row)
    return row["label"]
print("path", os.environ.get("PYTHONPATH"), flush=True)
collate({"image": 1})
"""


@pytest.fixture
def rig(project: Project) -> Submitter:
    project.env["TK_KEEP_MARGIN_S"] = "50"
    return Submitter(project)


class Standing:
    """A job whose Python stands at its exception."""

    def __init__(self, rig: Submitter, job: str, log: Path) -> None:
        self.rig, self.job, self.log = rig, job, log

    def text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    async def says(self, text: str, deadline_s: float = 60) -> None:
        await eventually(lambda: text in self.text(), f"{text!r} in the log", deadline_s)

    async def ended(self, deadline_s: float = 60) -> str:
        return (await self.rig.ended([self.job], deadline_s))[self.job].fields["ExitCode"]


async def stands(rig: Submitter, *own: str, after: str = "", options: str = "") -> Standing:
    program = rig.project.base / "fails.py"
    program.write_text(PROGRAM)
    text = f"#!/bin/sh\n{PYTHON} {program}\ncode=$?\necho after $code\n{after}\nexit $code\n"
    text = text.replace("{program}", str(program))
    path = rig.write(Case(text.encode()), "fails.sh")
    log = path.with_suffix(".log")
    case = Case(text.encode(), ["-c", "1", "-o", str(log), *(options or "-w node1").split()])
    one = Standing(rig, await rig.by_tk(case, path, *(own or ("--post-mortem",))), log)
    await one.says("the job is kept until")
    return one


async def at_the_exception(project: Project, editor: DapClient) -> int:
    event = await editor.wait_event("stopped", timeout_s=PATIENCE_S)
    assert event["reason"] == "exception"
    thread = int(event["threadId"])
    stack = await editor.request("stackTrace", threadId=thread, startFrame=0, levels=20)
    names = [frame["name"] for frame in stack["stackFrames"]]
    assert names == ["collate", "<module> (Current frame)"]
    assert await editor.evaluate("row, size", stack["stackFrames"][0]) == "({'image': 1}, 1)"
    return thread


@pytest.mark.timeout(300)
@pytest.mark.logins(20)
async def test_f5_enters_the_exception_of_a_batch_script(rig: Submitter) -> None:
    """Again and again, a console too; the program and its script then end as they would have."""
    one = await stands(rig)
    assert "KeyError: 'label'" in one.text() and "path None" in one.text()
    (shown,) = (await rig.project.tk("keep", "--json")).json
    (program,) = shown["standing"]
    assert (program["error"], program["where"]) == ("KeyError: 'label'", "fails.py:4")
    assert (program["node"], shown["code"]) == ("node1", None)
    listed = (await rig.project.tk("keep")).out
    assert "stands   KeyError: 'label' at fails.py:4" in listed

    up = await rig.project.tk("up", "--attach-job", one.job)
    assert "a program stands at its exception" in up.out
    status = (await rig.project.tk("status")).out
    assert f"kept     job {one.job} is kept since " in status and " on node1, costs 1 CPU" in status
    await rig.project.tk("console", "-c", "c")
    assert (await rig.project.tk("console", "-c", "p row")).out == "{'image': 1}\n"
    for _ in range(2):
        editor = await rig.project.f5(file="2.py")
        await at_the_exception(rig.project, editor)
        await editor.request("disconnect")
        await editor.drop()
    editor = await rig.project.f5(file="2.py")
    await at_the_exception(rig.project, editor)
    await rig.project.tk("keep", "--release")
    assert await one.ended() == "1:0"
    text = one.text()
    assert text.count("Traceback") == 1 and "after 1" in text
    assert "tk keep --release: the script goes on" in text
    assert left(rig, one) == []
    assert "is kept since" not in (await rig.project.tk("status")).out


async def its_time_is_over(rig: Submitter) -> None:
    one = await stands(rig, "--post-mortem=3s", "--keep-on-failure")
    assert await one.ended() == "1:0"
    await one.says("its time is over: the script goes on")
    assert one.text().count("the job is kept") == 1  # not again, as the script fails
    assert left(rig, one) == []


async def nobody_comes(rig: Submitter) -> None:
    one = await stands(rig, "--post-mortem", "--idle=3s", after=f"{PYTHON} {{program}}")
    assert await one.ended() == "1:0"
    await one.says("nobody was attached for 3 s: the script goes on")
    # The second program of the script ends as it would without tk.
    assert one.text().count("Traceback") == 2 and one.text().count(" stands at ") == 2
    assert left(rig, one) == []


async def it_is_cancelled(rig: Submitter) -> None:
    one = await stands(rig)
    await rig.at_login(["scancel", one.job])
    await one.ended()
    assert (await rig.records())[one.job]["JobState"] == "CANCELLED"
    await eventually(lambda: left(rig, one) == [], "no file is left")


async def the_program_is_killed(rig: Submitter) -> None:
    one = await stands(rig)
    (program,) = [
        shown["standing"][0]
        for shown in (await rig.project.tk("keep", "--json")).json
        if shown["job"] == one.job
    ]
    processes.kill([processes.look()[int(program["pid"])]])
    assert await one.ended() == "137:0"
    assert "after 137" in one.text() and left(rig, one) == []


def left(rig: Submitter, one: Standing) -> list[Path]:
    kept = rig.project.lab.home / ".cache" / "tunnelkit" / "kept"
    return list(kept.glob(f"{one.job}.*"))


@pytest.mark.timeout(300)
@pytest.mark.logins(40)
async def test_each_way_of_letting_go(rig: Submitter) -> None:
    """The script then goes on to its own end."""
    ways = (its_time_is_over, nobody_comes, it_is_cancelled, the_program_is_killed)
    async with asyncio.TaskGroup() as group:
        for way in ways:
            group.create_task(way(rig))
