"""Ranks of a real mpirun and mpi4py."""

from __future__ import annotations

import importlib.util
import os
import shutil
from typing import Any

import pytest

from tests.e2e.test_where_ranks_are import debugged, end, until
from tests.support.tkrig import Project, line_of

pytestmark = pytest.mark.skipif(
    shutil.which("mpirun") is None or importlib.util.find_spec("mpi4py") is None,
    reason="mpirun and mpi4py are not here: apt install openmpi-bin; pip install mpi4py",
)

#: Rank 1 does not come to the barrier.
LATE = """\
    import os
    import time
    from mpi4py import MPI

    comm = MPI.COMM_WORLD

    def load():
        while comm.rank == 1 and not os.path.exists("go"):
            time.sleep(0.01)

    def step():
        load()
        comm.Barrier()

    if os.environ.get("NEVER"):
        print("never")
    step()
    """


def _in_barrier(answer: dict[str, Any]) -> bool:
    calls = {one["call"]: one["ranks"] for one in answer["mpi_calls"]}
    return calls == {"Barrier": [0, 2], "": [1]}


async def test_the_rank_that_is_not_in_the_barrier_is_named(project: Project) -> None:
    project.write("late.py", LATE)
    await project.up("--nodes", "2", "--cpus", "2")
    words = ("env", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
    mpirun = ("mpirun", "--oversubscribe", "-n", "3", "--map-by", "node", "python", "late.py")
    terminal = await project.loop(*(words if os.getuid() == 0 else ()), *mpirun)
    await debugged(project, 3, "late.py", line_of(LATE, 'print("never")'))
    await until(project, _in_barrier)
    text = (await project.tk("ranks")).out
    assert "at Barrier: ranks 0,2; at no blocking call of MPI: rank 1" in text
    await end(project, terminal)
