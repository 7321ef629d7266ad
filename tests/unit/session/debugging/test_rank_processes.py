"""The ranks among the processes that a node reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.errors import AllocationError
from tunnelkit.messages.agent_calls import PythonInfo
from tunnelkit.session.debugging.attached_nodes import AttachedNodes
from tunnelkit.session.debugging.rank_processes import newest_run, rank_processes


def python(pid: int, rank: int | None, **fields: Any) -> PythonInfo:
    known = {
        "pid": pid,
        "node": "node1",
        "rank": rank,
        "local": 0,
        "run": "7.00000001",
        "ancestors": [],
        "command": ["python", "train.py"],
        "python": "/usr/bin/python",
        "launcher": False,
        "why_not": "",
    }
    return cast("PythonInfo", {**known, **fields})


def pids(found: list[PythonInfo]) -> list[int]:
    return [one["pid"] for one in found]


def test_a_rank_is_its_outermost_process_and_no_launcher() -> None:
    found = [
        python(30, 1, ancestors=[20, 10, 1]),
        python(20, 1, ancestors=[10, 1]),
        # srun gives torchrun a number, too.
        python(10, 1, launcher=True, ancestors=[1]),
        # Another host's processes may have the same pids.
        python(31, 1, node="node2", ancestors=[20, 1]),
        python(40, None),
        python(21, 0, ancestors=[10, 1]),
    ]
    assert pids(rank_processes(found)) == [21, 20, 31]


def test_the_newest_run_is_that_of_the_last_command() -> None:
    old = [python(1, 0, run="7.00000009"), python(2, 1, run="7.00000009")]
    new = [python(3, 0, run="7.00000010")]
    assert pids(newest_run([*old, *new])) == [3]
    assert newest_run([]) == []


processes = st.lists(
    st.builds(
        python,
        st.integers(-5, 20),
        st.one_of(st.none(), st.integers(-(10**20), 10**20), st.integers(0, 3)),
        node=st.sampled_from(["node1", "node2"]),
        launcher=st.booleans(),
        ancestors=st.lists(st.integers(-5, 20), max_size=4),
        run=st.text(max_size=3),
    ),
    max_size=12,
)


@given(processes)
def test_whatever_a_node_reports_ranks_are_in_order_and_were_reported(
    found: list[PythonInfo],
) -> None:
    ranks = rank_processes(found)
    numbers = [one["rank"] for one in ranks]
    assert all(rank is not None and 0 <= rank < 1_000_000 for rank in numbers)
    assert numbers == sorted(numbers, key=lambda rank: rank or 0)
    assert all(one in found for one in ranks)
    assert all(one in ranks for one in newest_run(ranks))
    assert bool(newest_run(ranks)) == bool(ranks)


async def test_nodes_are_kept_for_the_next_session_while_they_have_something(
    tmp_path: Path,
) -> None:
    kept = AttachedNodes(tmp_path / "state" / "nodes")
    for node in ("node2", "node3", "node2", "node4"):
        kept.add(node)
    with open(tmp_path / "state" / "nodes", "a") as file:
        file.write("-oProxyCommand=x\n../x\n\x1b[31m\n")
    asked = []

    async def adopt(node: str) -> int:
        asked.append(node)
        if node == "node4":
            raise AllocationError("no agent")
        return 1 if node == "node2" else 0

    await AttachedNodes(tmp_path / "state" / "nodes").adopt(adopt)
    assert asked == ["node2", "node3", "node4"]
    asked.clear()
    await kept.adopt(adopt)
    assert asked == ["node2"]
