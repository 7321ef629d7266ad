"""Which rank an environment names, and whose port files are believed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.debuggee.ranks import Contract, Rank, contract, port_file, rank_of, read_port

TORCHRUN = {"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "GROUP_RANK": "2"}
SRUN = {
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_NTASKS": "16",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_ID": "0",
}


def tk(step: str | None = None) -> dict[str, str]:
    return {"TK_RANKS": json.dumps({"dialin": "/tmp/x", "only": None, "step": step})}


ACCELERATE = {"ACCELERATE_USE_CPU": "False", "ACCELERATE_MIXED_PRECISION": "no"}


@pytest.mark.parametrize(
    ("environ", "rank"),
    [
        (TORCHRUN, Rank(5, 1, 8)),
        (
            {
                "OMPI_COMM_WORLD_RANK": "2",
                "OMPI_COMM_WORLD_LOCAL_RANK": "0",
                "OMPI_COMM_WORLD_SIZE": "4",
                "PMIX_RANK": "2",
            },
            Rank(2, 0, 4),
        ),
        ({"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1"}, Rank(1, 1, 2)),
        ({"PMI_RANK": "5", "PMI_SIZE": "8", "SLURM_LOCALID": "1"}, Rank(5, 1, 8)),
        ({"PMI_RANK": "5", "PMI_SIZE": "8", "PMI_LOCAL_RANK": "1"}, Rank(5, 1, 8)),
        ({"PMI_RANK": "5", "PMI_SIZE": "8", "PALS_LOCAL_RANKID": "1"}, Rank(5, 1, 8)),
        # A task of Flux inside of a step of Slurm.
        (
            {"PMI_RANK": "5", "PMI_SIZE": "8", "FLUX_TASK_LOCAL_ID": "1", "SLURM_LOCALID": "0"},
            Rank(5, 1, 8),
        ),
        ({"PMIX_RANK": "1", "SLURM_LOCALID": "0", "SLURM_NTASKS": "2"}, Rank(1, 0, 2)),
        ({"HOROVOD_RANK": "1", "HOROVOD_LOCAL_RANK": "0", "HOROVOD_SIZE": "2"}, Rank(1, 0, 2)),
        (SRUN, Rank(3, 1, 4)),
        # torchrun below srun: the nearest launcher knows.
        ({**SRUN, **TORCHRUN}, Rank(5, 1, 8)),
        ({**SRUN, **tk("4294967291")}, Rank(3, 1, 4)),
        # The batch step, and everything that it starts without srun.
        ({**SRUN, "SLURM_STEP_ID": "4294967291", **tk("4294967291")}, None),
        ({"SLURM_PROCID": "0", "SLURM_LOCALID": "0"}, None),
        ({"SLURM_PROCID": "0", **tk(None)}, None),
        # accelerate launch with one process, also in tk's own step of a job.
        (ACCELERATE, Rank(0, 0, 1)),
        ({**ACCELERATE, "SLURM_PROCID": "0", **tk(None)}, Rank(0, 0, 1)),
        ({**ACCELERATE, **TORCHRUN}, Rank(5, 1, 8)),
        # Accelerator() reads it: scripts export it, and start other programs, too.
        ({"ACCELERATE_MIXED_PRECISION": "bf16"}, None),
        # A word that many programs use for something else.
        ({"RANK": "1"}, None),
        ({"RANK": "captain", "WORLD_SIZE": "2"}, None),
        ({"RANK": "", "WORLD_SIZE": ""}, None),
        ({}, None),
    ],
)
def test_the_rank_of_an_environment(environ: dict[str, str], rank: Rank | None) -> None:
    assert rank_of(environ) == rank


WORDS = st.sampled_from(
    [*TORCHRUN, *SRUN, "PMI_RANK", "PMI_SIZE", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "TK_RANKS"]
)


@given(st.dictionaries(WORDS, st.text(max_size=8) | st.integers(0, 99).map(str)))
def test_any_environment_gives_a_rank_or_none(environ: dict[str, str]) -> None:
    rank = rank_of(environ)
    assert rank is None or min(rank) >= 0


def test_the_contract() -> None:
    text = json.dumps({"dialin": "/tmp/a.1", "only": [0, 2], "step": 7, "collectives": "keep"})
    found = contract({"TK_RANKS": text})
    assert found == Contract("/tmp/a.1", (0, 2), "7", True)
    assert found.wants(Rank(2)) and not found.wants(Rank(1))
    assert contract(tk()).wants(Rank(99))


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"dialin": 3}', "null"])
def test_a_malformed_contract_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        contract({"TK_RANKS": text})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    directory = tmp_path / "run"
    directory.mkdir(mode=0o700)
    path = Path(port_file(str(directory / "loop.1"), "n1"))
    path.touch(mode=0o600)
    path.write_text("4711\n")
    return path


def test_a_port_is_read(file: Path) -> None:
    assert file.name == "loop.1.n1.port"
    assert read_port(str(file)) == 4711


@pytest.mark.parametrize("text", ["", "0", "65536", "-1", "port", "4711 4712", "9" * 70])
def test_a_file_without_a_port(file: Path, text: str) -> None:
    file.write_text(text)
    with pytest.raises(ValueError, match="holds no port"):
        read_port(str(file))


@pytest.mark.parametrize(("which", "mode"), [("file", 0o622), ("file", 0o660), ("dir", 0o750)])
def test_a_file_that_others_could_write(file: Path, which: str, mode: int) -> None:
    (file if which == "file" else file.parent).chmod(mode)
    with pytest.raises(PermissionError):
        read_port(str(file))


def test_links_and_pipes_are_no_port_files(file: Path) -> None:
    link = file.with_name("link")
    link.symlink_to(file)
    with pytest.raises(OSError):
        read_port(str(link))
    pipe = file.with_name("pipe")
    os.mkfifo(pipe, 0o600)
    with pytest.raises(ValueError):
        read_port(str(pipe))
    directory = file.parent.with_name("other")
    directory.symlink_to(file.parent)
    with pytest.raises(NotADirectoryError):
        read_port(str(directory / file.name))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file to another user")
@pytest.mark.parametrize("which", ["file", "dir"])
def test_another_users_file(file: Path, which: str) -> None:
    os.chown(file if which == "file" else file.parent, 65534, 65534)
    with pytest.raises(PermissionError):
        read_port(str(file))


def test_is_importable_alone() -> None:
    code = "import sys, tunnelkit.debuggee.ranks; print([m for m in sys.modules if 'tunnelk' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "hook" not in done.stdout and "collectives" not in done.stdout
