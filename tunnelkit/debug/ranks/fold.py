"""Many ranks, written briefly: `0-3,7`."""

from __future__ import annotations

from collections.abc import Iterable


def fold_ranks(ranks: Iterable[int]) -> str:
    """Write ranks as `0-3,7`, ascending, each once; "" for none."""
    runs: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ",".join(f"{low}-{high}" if low < high else str(low) for low, high in runs)
