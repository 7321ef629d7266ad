"""The command forms that people have in their scripts."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.debug.loop_command import PORT_MARK, loop_spec, understand
from tunnelkit.errors import UsageError

DIALS_OUT = ["--connect", f"127.0.0.1:{PORT_MARK}", "--wait-for-client"]


@pytest.mark.parametrize(
    ("line", "target"),
    [
        ("python -m debugpy --wait-for-client 2.py", "2.py"),
        ("python -m debugpy --listen 40056 --wait-for-client 2.py a -b", "2.py a -b"),
        ("python -m debugpy --listen 0.0.0.0:40056 2.py", "2.py"),
        ("python -m debugpy --connect 1.2.3.4:5678 -m pkg.mod --x 1", "-m pkg.mod --x 1"),
        ("python -m debugpy --configure-subProcess false -c 'print(1)'",
         "--configure-subProcess false -c 'print(1)'"),
        ("python -m ptvsd --host 0.0.0.0 --port 40056 --wait 2.py", "2.py"),
        ("python -m ptvsd --port 40056 -m pkg", "-m pkg"),
        ("python train.py --epochs 1", "train.py --epochs 1"),
        ("python -m pkg.train", "-m pkg.train"),
        ("DEBUG_PORT_NAME=debug DEBUG_TIMEOUT=600 python -m paipdb x.py a", "x.py a"),
    ],
)  # fmt: skip
def test_every_form_dials_out(line: str, target: str) -> None:
    command = understand(shlex.split(line))
    assert command.debug
    assert list(command.interpreter) == ["python"]
    assert list(command.words) == [*DIALS_OUT, *shlex.split(target)]
    assert command.shown == line


@pytest.mark.parametrize(
    ("line", "port"),
    [
        ("python -m debugpy --listen 40056 2.py", 40056),
        ("python -m debugpy --listen 0.0.0.0:5678 2.py", 5678),
        ("python -m ptvsd --host 0.0.0.0 --port 40057 --wait 2.py", 40057),
        ("python -m debugpy --wait-for-client 2.py", None),
    ],
)
def test_the_named_port_is_the_editors(line: str, port: int | None) -> None:
    assert understand(shlex.split(line)).port == port


def test_what_is_changed_is_said() -> None:
    (note,) = understand(["python", "-m", "ptvsd", "--port", "5678", "x.py"]).notes
    assert "debugpy" in note
    (note,) = understand(["python", "-m", "debugpy", "--listen", "0.0.0.0:1", "x.py"]).notes
    assert "0.0.0.0:1" in note


@pytest.mark.parametrize("python", ["python3.11", "/opt/conda/bin/python", "python3"])
def test_interpreters_and_their_switches_stay(python: str) -> None:
    command = understand([python, "-W", "error", "-u", "x.py"])
    assert list(command.interpreter) == [python, "-Werror", "-u"]
    assert list(command.words) == [*DIALS_OUT, "x.py"]


@pytest.mark.parametrize(
    ("line", "switches", "target"),
    [
        ("python -um pkg.mod a", ["-u"], ["-m", "pkg.mod", "a"]),
        ("python -Bm pkg.mod", ["-B"], ["-m", "pkg.mod"]),
        ("python -uc 'print(1)' a", ["-u"], ["-c", "print(1)", "a"]),
        ("python -cprint(1)", [], ["-c", "print(1)"]),
        ("python -uWignore x.py", ["-u", "-Wignore"], ["x.py"]),
        ("python -um debugpy --listen 5678 x.py", ["-u"], ["x.py"]),
        ("python -um ptvsd --port 5678 x.py", ["-u"], ["x.py"]),
        ("python -- -x.py", [], ["./-x.py"]),
    ],
)
def test_switches_in_one_word_are_read_as_python_reads_them(
    line: str, switches: list[str], target: list[str]
) -> None:
    command = understand(shlex.split(line))
    assert command.debug
    assert list(command.interpreter) == ["python", *switches]
    assert list(command.words) == [*DIALS_OUT, *target]
    assert command.port == (5678 if "5678" in line else None)


@pytest.mark.parametrize(
    "line",
    [
        "nvidia-smi",
        "bash run.sh",
        "python --version",
        "python",
        "./train.py -m debugpy",
        "run -m debugpy x",
    ],
)
def test_other_commands_run_as_they_are(line: str) -> None:
    command = understand(line.split())
    assert list(command.argv) == line.split()
    assert not command.debug
    # Beside a `--listen` in the script debugpy would refuse it, and nobody serves the other end.
    assert "DEBUGPY_EXTRA_ARGV" not in command.env


@pytest.mark.parametrize("before", ["uv run", "apptainer exec --nv image.sif", "conda run -n x"])
@pytest.mark.parametrize("listen", ["", "--listen 5678", "--listen 127.0.0.1:5678"])
def test_debugpy_behind_a_wrapper_dials_out_by_its_command_line(before: str, listen: str) -> None:
    """`--listen` and `--connect` exclude each other there."""
    line = f"{before} python -m debugpy {listen} --wait-for-client train.py -x"
    command = understand(line.split())
    own = [*before.split(), "python", "-m", "debugpy", *DIALS_OUT, "train.py", "-x"]
    assert list(command.argv) == own
    assert command.debug and not command.words and command.file is None
    assert command.port == (5678 if listen else None) and command.shown == shlex.join(line.split())


def test_a_wrapper_that_names_debugpy_is_debugged() -> None:
    assert understand(["srun", "-n1", "python", "-m", "debugpy", "--wait-for-client", "x.py"]).debug


@pytest.mark.parametrize(
    "line",
    [
        "",
        "python -m debugpy",
        "python -m debugpy --listen",
        "python -m debugpy --listen nowhere x.py",
        "python -m debugpy --wait-for-client -m",
        "python -m ptvsd --port 99999 x.py",
        "python -m ptvsd --nosuch x.py",
    ],
)
def test_malformed_commands_are_refused(line: str) -> None:
    with pytest.raises(UsageError):
        understand(line.split())


@given(st.lists(st.text(min_size=1), min_size=1, max_size=6))
def test_arguments_of_the_program_are_never_touched(words: list[str]) -> None:
    command = understand(["python", "x.py", *words])
    assert list(command.argv)[-len(words) :] == words


@pytest.mark.parametrize(
    "line",
    [
        "torchrun --nproc-per-node 4 train.py",
        "/opt/env/bin/torchrun --standalone train.py",
        "srun -n 8 python train.py",
        "mpirun -np 2 python train.py",
        "env OMP_NUM_THREADS=1 srun -n 2 python train.py",
        "uv run torchrun train.py",
        "uv run --frozen accelerate launch train.py",
        "conda run -n ds srun -n 2 python train.py",
        "accelerate launch --no_python python train.py",
        "deepspeed --no_python nsys profile python train.py",
        "env -i deepspeed train.py",
        "accelerate launch train.py",
        "accelerate-launch train.py",
        "mpirun.openmpi -n 2 python train.py",
        "python -m torch.distributed.run --standalone train.py",
        "python3.11 -u -m torch.distributed.launch train.py",
        "python -m debugpy --wait-for-client -m torch.distributed.run train.py",
        "python -m accelerate.commands.launch train.py",
    ],
)
def test_a_launcher_runs_as_it_is_and_its_ranks_are_debugged(line: str) -> None:
    command = understand(shlex.split(line))
    assert command.ranks and command.debug
    assert list(command.argv) == shlex.split(line)
    assert not command.interpreter
    assert "DEBUGPY_EXTRA_ARGV" not in command.env
    spec = loop_spec(command, cwd="/x", editor_port=1, only=[2, 0, 2], collectives="keep")
    assert spec["ranks"] == {"only": [0, 2], "collectives": "keep"}


@pytest.mark.parametrize(
    "line",
    [
        "python train.py torchrun",
        "python -m pkg srun",
        "./train.py srun",
        "bash run.sh",
        "env A=1 python -m debugpy x.py mpirun",
        "conda run -n ds python -m debugpy --wait-for-client 2.py",
        "uv run --with lightning python -m debugpy 2.py",
        "uv run --with lightning train.py",
        "apptainer exec --bind /data/ds img.sif python 2.py",
    ],
)
def test_what_only_mentions_a_launcher_is_none(line: str) -> None:
    words = shlex.split(line)
    assert not understand(words).ranks
    assert loop_spec(understand(words), cwd="/x", editor_port=1)["ranks"] is None
    assert understand(words, ranks=True).ranks
