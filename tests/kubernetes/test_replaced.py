"""A StatefulSet's pod is deleted while files are saved; its owner makes another."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.kubernetes import Member
from tests.support.kubernetes.project import RigProject, stateful_set
from tests.support.tkrig import PATIENCE_S, PROGRAM, line_of

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]

STOP = line_of(PROGRAM, "total += step")
FILES = 40


@pytest.fixture(scope="module", autouse=True)
def made(member: Member) -> None:
    member.make(stateful_set("dev", 1))
    member.wait_ready("dev-0")


async def test_the_new_pod_has_each_file_that_was_saved(
    member: Member, project: RigProject
) -> None:
    await project.up("sts/dev")
    terminal = await project.loop("python3", "2.py")
    saved = asyncio.Event()

    async def save() -> None:
        for turn in range(5):
            for number in range(FILES):
                project.write(f"data/{number}.txt", f"{turn} {number}\n")
                await asyncio.sleep(0.02)
            if not turn:
                saved.set()

    saving = asyncio.create_task(save())
    await saved.wait()
    await asyncio.to_thread(member.admin, "delete", "pod", "dev-0", "--wait=false")
    await saving
    await terminal.line(r"what ran on dev-0 is gone: it (was|is being) deleted", PATIENCE_S)
    await terminal.line(r"armed", PATIENCE_S)
    await project.ready()
    there = member.shell("dev-0", "cat data/*.txt | sort")
    assert sorted(there.splitlines()) == sorted(f"4 {number}" for number in range(FILES))
    editor, thread, _ = await project.f5_to_stop(STOP)
    await editor.request("setBreakpoints", source={"path": str(project.dir / "2.py")})
    await editor.finish(thread)
    await terminal.line(r"step 2 first")
    assert (await project.status())["job"]["requeues"] == 1
    await project.tk("down")
