"""How the programs of several pods find one another."""

from __future__ import annotations

import pytest

from tunnelkit.debug.loop_agents.variables import node_variables, runs_on_each_node


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("torchrun train.py", True),
        ("/opt/conda/bin/torchrun --nproc-per-node 4 train.py", True),
        ("env A=1 torchrun --nnodes=2 train.py", True),
        ("python -m torch.distributed.run train.py", True),
        ("python3 -m torch.distributed.launch train.py", True),
        ("torchrun --standalone train.py", False),
        ("torchrun --nnodes 1 train.py", False),
        ("torchrun --nnodes=1:1 train.py", False),
        ("python train.py", False),
        ("mpirun -n 4 python train.py", False),
        ("deepspeed train.py", False),
    ],
)
def test_launchers_that_each_node_needs(line: str, expected: bool) -> None:
    assert runs_on_each_node(line.split()) is expected


def test_torchrun_gets_its_own_options() -> None:
    found = node_variables(["torchrun", "t.py"], 1, 2, "10.0.0.7")
    assert found == {
        "PET_NNODES": "2",
        "PET_NODE_RANK": "1",
        "PET_MASTER_ADDR": "10.0.0.7",
        "PET_MASTER_PORT": "29500",
    }


def test_a_program_gets_what_torch_distributed_reads() -> None:
    found = node_variables(["python", "t.py"], 2, 3, "")
    assert found == {"RANK": "2", "WORLD_SIZE": "3", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    assert node_variables(["python", "t.py"], 0, 3, "fd00::1")["MASTER_ADDR"] == "fd00::1"
