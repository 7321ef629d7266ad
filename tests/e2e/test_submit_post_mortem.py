"""`tk submit --post-mortem` on the lab's real Slurm: a script's Python stands at its exception."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.submit_rig import Case, Submitter
from tests.support.tkrig import PATIENCE_S, Project, eventually
from tunnelkit.demo.dap_client import DapClient

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
    text = f"#!/bin/sh\npython3 {program}\ncode=$?\necho after $code\n{after}\nexit $code\n"
    path = rig.write(Case(text.encode()), "fails.sh")
    log = path.with_suffix(".log")
    case = Case(text.encode(), ["-c", "1", "-w", "node1", "-o", str(log), *options.split()])
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
    """Twice; the program and its script then end as they would have."""
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
    kept = rig.project.lab.home / ".cache" / "tunnelkit" / "kept"
    assert [path for path in kept.iterdir() if path.name.startswith(one.job)] == []
