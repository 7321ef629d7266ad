"""Four ranks read a shard each, and meet. One never comes: a job for `tk ranks`."""

import os
import time

RANK, RANKS = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])


def load(path: str) -> "list[float]":
    """Read a shard; who writes it may not be ready yet."""
    while not os.path.exists(path):
        time.sleep(0.1)
    with open(path) as file:
        return [float(line) for line in file]


def meet(place: str) -> None:
    """Wait for all ranks: each leaves a file."""
    open(f"{place}.{RANK}", "w").close()
    while not all(os.path.exists(f"{place}.{rank}") for rank in range(RANKS)):
        time.sleep(0.1)


def main() -> None:
    print(f"rank {RANK} begins", flush=True)
    points = load(f"shard{RANK}.txt")
    meet(f"met.{os.environ['SLURM_JOB_ID']}.{os.environ['SLURM_STEP_ID']}")
    print(f"rank {RANK}: mean {sum(points) / len(points):g}", flush=True)


if __name__ == "__main__":
    main()
