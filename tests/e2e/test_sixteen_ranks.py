"""`tk ranks` on 16 ranks of two nodes, and a lab that has the CPUs for them."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from tests.e2e.test_where_ranks_are import needs_torch
from tests.lab_fixtures import running_lab, ssh, why_no_lab
from tests.support.tkrig import Project, project_on
from tunnelkit import lab as tk_lab
from tunnelkit.errors import UsageError
from tunnelkit.lab import LabInfo
from tunnelkit.lab.programs import SLURM_PROGRAMS, missing

pytestmark = pytest.mark.slow

#: Three ranks do not come to the fourth collective, each for another reason.
HANG = """\
    import ctypes
    import os
    import torch
    import torch.distributed as dist

    def spin():
        while True:
            pass

    def native():
        # It keeps the GIL, as a library may.
        ctypes.PyDLL(None).usleep(ctypes.c_uint(600_000_000))

    def train():
        total = torch.ones(1)
        for step in range(5):
            if step == 3:
                open(f"begun{rank}", "w").close()
                {3: spin, 6: native, 13: spin}.get(rank, int)()
            dist.all_reduce(total)

    rank, size = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{os.getcwd()}/meet", rank=rank, world_size=size)
    train()
    """
RANKS, LATE, NATIVE, KEPT = 16, 3, 6, 13


@pytest.fixture(scope="module")
def wide_lab() -> Iterator[LabInfo]:
    """A lab whose two nodes have CPUs for 64 ranks."""
    if reason := why_no_lab():
        pytest.skip(reason)
    if missing(SLURM_PROGRAMS):
        pytest.skip("Slurm is not installed")
    with running_lab(cpus=32) as info:
        yield info


@pytest.fixture
async def wide_project(wide_lab: LabInfo) -> AsyncIterator[Project]:
    async with project_on(wide_lab) as made:
        yield made


def test_a_lab_with_more_cpus_runs_64_tasks_on_two_nodes(
    wide_lab: LabInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = ssh(wide_lab, "login", "srun -N2 -n64 printenv SLURMD_NODENAME").split()
    assert sorted(nodes) == ["node1"] * 32 + ["node2"] * 32
    monkeypatch.setenv("TK_CONFIG_DIR", str(wide_lab.profile.parents[1]))
    # Who does not ask for CPUs leaves them as they are.
    assert tk_lab.up(wide_lab.dir) == wide_lab
    with pytest.raises(UsageError, match="0 CPUs"):
        tk_lab.up(wide_lab.dir, cpus=0)


@needs_torch
async def test_the_late_one_of_16_ranks_is_named_and_two_silent_ones_are_described(
    wide_project: Project,
) -> None:
    project = wide_project
    project.write("train.py", HANG)
    await project.up("--nodes", "2", "--cpus", "8")
    terminal = await project.loop("srun", "-n", str(RANKS), "python", "train.py")
    await until(project, all_wait)
    await project.tk("console", "-c", "c", "--json")
    pids = {one["rank"]: one["pid"] for one in (await until(project, hangs))["ranks"]}
    os.kill(pids[KEPT], signal.SIGSTOP)
    try:
        began_s = time.monotonic()
        text = (await project.tk("ranks")).out
        took_s = time.monotonic() - began_s
    finally:
        os.kill(pids[KEPT], signal.SIGCONT)
    print(f"tk ranks: {took_s:.1f} s for {RANKS} ranks, two of them silent")
    said = " ".join(text.split())
    assert "16 ranks on 2 nodes" in said and "14 of 16 answered" in said
    assert "rank 3 has not reached all_reduce #4" in said
    assert "13 ranks are waiting in it; no answer from ranks 6,13" in said
    spins = rf"^\w +{LATE} +1 +train.py:\d+ spin +(computes or polls|moves)"
    assert re.search(spins, text, re.M), text
    assert "no answer from rank 6 (node1): asleep, maybe in native code" in said
    assert "no answer from rank 13 (node2): stopped by a signal (state T" in said
    await terminal.quit()


def all_wait(answer: Any) -> bool:
    ranks = answer["ranks"]
    return len(ranks) == RANKS and all(one["state"] == "waiting" for one in ranks)


def hangs(answer: Any) -> bool:
    """13 ranks wait in the collective, and the native one has ceased to answer."""
    quiet = [one["rank"] for one in answer["ranks"] if one["state"] == "silent"]
    waiting = [len(one["waiting"]) for one in answer["arrivals"]]
    return quiet == [NATIVE] and waiting == [RANKS - 3]


async def until(project: Project, condition: Callable[[Any], bool]) -> Any:
    """Ask until it is so; 16 starts of torch take their time."""
    ends = time.monotonic() + 240
    while True:
        done = await project.tk("ranks", "--json", code=None)
        if done.code == 0 and condition(done.json):
            return done.json
        assert time.monotonic() < ends, f"{done}\n{project.session_log()}"
