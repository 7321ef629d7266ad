"""The rank of a process of a distributed program, and the port that it dials.

Rules of this file: importable alone, by the agent on /proc/PID/environ as well as by the hook in
every Python of a debugged job (rank_hook.py), so it does nothing at import.
"""

import json
import os
import stat
from typing import List, Mapping, NamedTuple, Optional, Tuple

#: In the environment of everything that a debugged loop starts; see `Contract`.
VARIABLE = "TK_RANKS"


class Rank(NamedTuple):
    """A rank as MPI and torch count: from 0; on its node from 0; of how many (0: unknown)."""

    global_rank: int
    local_rank: int = 0
    world_size: int = 0


class Contract(NamedTuple):
    """The agent's settings for the hook, in TK_RANKS as a JSON object.

    dialin: path that the port files of the loop's nodes begin with. only: the ranks to debug, None
    for all. step: SLURM_STEP_ID of the agent's own step; a process with another one was started by
    srun. keep_collectives: leave torch's timeouts alone ("collectives": "keep").
    """

    dialin: str
    only: Optional[Tuple[int, ...]] = None
    step: Optional[str] = None
    keep_collectives: bool = False

    def wants(self, rank: Rank) -> bool:
        """True if this rank is among those to debug."""
        return self.only is None or rank.global_rank in self.only


def contract(environ: Mapping[str, str]) -> Contract:
    """The contract of an environment with TK_RANKS. Raises ValueError for a malformed one."""
    given = json.loads(environ[VARIABLE])
    if not isinstance(given, dict) or not isinstance(given.get("dialin"), str):
        raise ValueError(f"{VARIABLE} names no dialin")
    only, step = given.get("only"), given.get("step")
    return Contract(
        given["dialin"],
        None if only is None else tuple(int(rank) for rank in only),
        None if step is None else str(step),
        given.get("collectives") == "keep",
    )


#: Rank, local rank and world size in the words of each launcher, nearest to the program first:
#: torchrun inside of srun has both, and its own words count.
_WORDS: List[Tuple[str, Tuple[str, ...], Tuple[str, ...]]] = [
    ("RANK", ("LOCAL_RANK",), ("WORLD_SIZE",)),
    ("OMPI_COMM_WORLD_RANK", ("OMPI_COMM_WORLD_LOCAL_RANK",), ("OMPI_COMM_WORLD_SIZE",)),
    ("HOROVOD_RANK", ("HOROVOD_LOCAL_RANK",), ("HOROVOD_SIZE",)),
    # Hydra (MPICH, Intel MPI), MVAPICH, Cray PALS and Flux; Slurm's own PMI adds its words, too.
    (
        "PMI_RANK",
        (
            "MPI_LOCALRANKID",
            "MV2_COMM_WORLD_LOCAL_RANK",
            "PMI_LOCAL_RANK",
            "PALS_LOCAL_RANKID",
            "FLUX_TASK_LOCAL_ID",
            "SLURM_LOCALID",
        ),
        ("PMI_SIZE",),
    ),
    ("PMIX_RANK", ("PMIX_LOCAL_RANK", "SLURM_LOCALID"), ("PMIX_SIZE", "SLURM_NTASKS")),
]


def rank_of(environ: Mapping[str, str]) -> Optional[Rank]:
    """The rank that an environment names, or None.

    Slurm's words count in a step of its own only: the batch script has a SLURM_PROCID as well,
    and everything below it inherits that. Which step is the agent's stands in TK_RANKS.
    """
    for rank_word, local_words, size_words in _WORDS:
        rank = _number(environ, rank_word)
        # RANK alone is a common word; torchrun and its kind always say of how many.
        if rank is not None and (rank_word != "RANK" or "WORLD_SIZE" in environ):
            return Rank(rank, _first(environ, local_words), _first(environ, size_words))
    rank = _number(environ, "SLURM_PROCID")
    if rank is None or not _in_own_step(environ):
        # accelerate's launcher of one process names no rank; users export one of these themselves.
        marks = ("ACCELERATE_USE_CPU", "ACCELERATE_MIXED_PRECISION")
        return Rank(0, 0, 1) if all(mark in environ for mark in marks) else None
    size = _first(environ, ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"))
    return Rank(rank, _first(environ, ("SLURM_LOCALID",)), size)


def _in_own_step(environ: Mapping[str, str]) -> bool:
    try:
        agents_step = contract(environ).step
    except (KeyError, ValueError, TypeError):
        agents_step = None
    return "SLURM_STEP_ID" in environ and environ["SLURM_STEP_ID"] != agents_step


def _number(environ: Mapping[str, str], word: str) -> Optional[int]:
    text = environ.get(word, "")
    return int(text) if len(text) < 10 and text.isascii() and text.isdigit() else None


def _first(environ: Mapping[str, str], words: Tuple[str, ...]) -> int:
    for word in words:
        number = _number(environ, word)
        if number is not None:
            return number
    return 0


def node_name(environ: Mapping[str, str]) -> str:
    """This node, as the files of its ports are named: a pod's or Slurm's name for it, or the
    host's."""
    # In the lab several nodes share one host, so these words are the better ones.
    return environ.get("TK_NODE") or environ.get("SLURMD_NODENAME") or os.uname().nodename


def port_file(dialin: str, node: str) -> str:
    """The file with the dial-in port of a node: a decimal number."""
    return f"{dialin}.{node}.port"


def read_port(path: str) -> int:
    """The port in such a file. Raises OSError, ValueError; PermissionError if somebody else
    could have written it."""
    directory = os.lstat(os.path.dirname(path))
    if not stat.S_ISDIR(directory.st_mode):
        raise NotADirectoryError(f"{os.path.dirname(path)} is no directory")
    _check_ours(directory, 0o077, os.path.dirname(path))
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError(f"{path} is no file")
        _check_ours(found, 0o022, path)
        text = os.read(fd, 64).decode("ascii", "replace").strip()
    finally:
        os.close(fd)
    port = int(text) if text.isascii() and text.isdigit() else 0
    if not 1 <= port <= 65535:
        raise ValueError(f"{path} holds no port")
    return port


def _check_ours(found: os.stat_result, forbidden: int, path: str) -> None:
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & forbidden:
        raise PermissionError(f"{path} could be written by another user")
