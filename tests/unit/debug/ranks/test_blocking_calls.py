"""Which blocking call of MPI each rank is in, by the line of the program where it stands."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.debug.ranks.rank_samples import LOADS, STEP, own, sample
from tunnelkit.debug.ranks.arrivals import blocking_calls
from tunnelkit.debug.ranks.sample import RankState


def reader(text: str) -> Callable[[str, int], str | None]:
    return lambda file, line: text if (file, line) == (STEP.file, STEP.line) else None


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("        comm.Barrier()", "Barrier"),
        ("x = MPI.COMM_WORLD.allreduce(x, op=MPI.SUM)", "allreduce"),
        ("self.comm.Recv(buffer, source=0)", "Recv"),
        ("MPI.Request.Waitall(requests)", "Waitall"),
        ("request.Wait()", "Wait"),
        ("data = sock.recv(100)", ""),
        ("gate = threading.Barrier(3)", ""),
        ("request = comm.Isend(x, dest=1)", ""),
        ("run()  # comm.Barrier()", ""),
        ("", ""),
    ],
)
def test_blocking_calls_are_read_from_the_line(line: str, name: str) -> None:
    found = blocking_calls([sample(0)], reader(line))
    assert found.calls == (((name, (0,)),) if name else ())
    assert found.none == (() if name else (0,))


def test_who_is_in_which_call() -> None:
    ranks = [sample(rank) for rank in (5, 1, 0)]
    ranks += [
        sample(2, LOADS),
        sample(3, (), state=RankState.SILENT),
        sample(4, (STEP, own("c.py", 1, "Bcast"))),
    ]
    found = blocking_calls(ranks, reader("comm.Barrier()"))
    assert found.calls == (("Barrier", (0, 1, 5)), ("Bcast", (4,)))
    assert found.none == (2,)
    assert blocking_calls(ranks).none == (0, 1, 2, 5)
