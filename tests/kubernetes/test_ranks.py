"""Three ranks in three pods: one F5 for all of them, and one dies."""

from __future__ import annotations

import re

import pytest

from tests.support.kubernetes import Member
from tests.support.kubernetes.project import RigProject, stateful_set
from tests.support.pod_ranks import STOP, TRAIN, children, to_the_end
from tests.support.tkrig import PATIENCE_S

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]

PODS = ("train-0", "train-1", "train-2")


@pytest.fixture(scope="module", autouse=True)
def made(member: Member) -> None:
    member.make(stateful_set("train", len(PODS)))
    member.wait_ready(*PODS)


async def test_one_f5_and_one_rank_dies(member: Member, project: RigProject) -> None:
    project.write("train.py", TRAIN)
    await project.up("sts/train")
    terminal = await project.loop("--all-pods", "python3", "train.py")
    assert "RANK, WORLD_SIZE: tk gives them" in terminal.text
    await terminal.line(r"all 3 ranks wait \(train-0: 0, train-1: 1, train-2: 2\)")
    first = await project.f5(STOP, file="train.py")
    sessions = {0: first, **await children(project, first, 2)}
    stops = {rank: await editor.stopped(PATIENCE_S) for rank, editor in sessions.items()}
    for rank, (_, frame) in stops.items():
        assert await sessions[rank].evaluate("rank * 100 + size", frame) == str(rank * 100 + 3)

    member.shell("train-1", "pkill -KILL -f '[t]rain.py'")
    await sessions[1].wait_event("terminated", timeout_s=PATIENCE_S)
    for rank in (0, 2):
        thread, frame = stops[rank]
        assert await sessions[rank].evaluate("rank + 1000", frame) == str(rank + 1000)
        await to_the_end(sessions[rank], thread, frame["source"])
        await terminal.line(rf"rank {rank} of 3 done in train-{rank}")
    await terminal.line(r"run 1 · ended on train-1: .*KILL|run 1 · ended")
    assert re.search("train-1", terminal.text)
    await terminal.line(r"run 2 · .*all 3 ranks wait|run 2 · armed")
    await project.tk("down")
