"""Variables by which the programs of several nodes find one another.

PET_*: of torchrun, one for each of its options (torch.distributed.run). RANK and its kind: of
torch.distributed's `env://`. An operator such as Kubeflow's sets them; elsewhere tk does.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import PurePosixPath

_PORT = "29500"  # torch's own
_TORCHRUN_MODULES = ("torch.distributed.run", "torch.distributed.launch")
_ONE_NODE = frozenset({"standalone", "nnodes=1", "nnodes=1:1"})


def runs_on_each_node(words: Sequence[str]) -> bool:
    """Return True for torchrun, unless its options say that it is for one node."""
    return _is_torchrun(words) and not _ONE_NODE.intersection(_options(words))


def node_variables(words: Sequence[str], place: int, nodes: int, address: str) -> dict[str, str]:
    """Return the variables for the node at `place`. address: the first node's; "" if unknown."""
    first = {"MASTER_ADDR": address, "MASTER_PORT": _PORT} if address else {}
    if _is_torchrun(words):
        found = {"NNODES": str(nodes), "NODE_RANK": str(place), **first}
        return {f"PET_{name}": value for name, value in found.items()}
    one = {"RANK": str(place), "WORLD_SIZE": str(nodes)}
    return {**one, "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", **first}


def _is_torchrun(words: Sequence[str]) -> bool:
    names = [PurePosixPath(word).name for word in words]
    modules = (two for one, two in pairwise(words) if one == "-m")
    return "torchrun" in names or any(module in _TORCHRUN_MODULES for module in modules)


def _options(words: Sequence[str]) -> set[str]:
    """Return options in one spelling: `--nnodes 1` is nnodes=1."""
    joined = [*words, *(f"{one}={two}" for one, two in pairwise(words))]
    return {word.lstrip("-").replace("_", "-") for word in joined if word.startswith("--")}
