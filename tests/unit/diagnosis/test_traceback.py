"""Tracebacks, as real Pythons, torchrun, srun and mpirun wrote them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.diagnosis.ended.log.streams import LONGEST_TEXT
from tunnelkit.diagnosis.ended.log.traceback import (
    Traceback,
    first_failure,
    last_traceback,
    root_cause,
)

#: `record` in it says how they were made.
_DATA = Path(__file__).parents[2] / "support/data/tracebacks"
_LOGS = sorted(path.name for path in _DATA.glob("*.log"))


def _log(name: str) -> str:
    return (_DATA / name).read_text()


def summary(found: Traceback | None) -> dict[str, object] | None:
    """Return what the recorded expectations hold of a traceback."""
    if found is None:
        return None
    return {
        "type": found.type,
        "message": found.message,
        "file": found.file,
        "line": found.line,
        "function": found.function,
        "source": found.source,
        "own_line": found.place.line if found.place else None,
        "rank": found.rank,
        "lines": [found.first_line, found.last_line],
        "chain": [one.type for one in found.raised],
        "parts": [f"{one.type}: {one.message}" for one in found.cause.parts],
        "notes": list(found.cause.notes),
        "after": list(found.cause.after),
        "thread": found.thread,
        "root": [found.root.rank, found.root.exit_code] if found.root else None,
    }


def test_there_are_enough_real_logs() -> None:
    assert len(_LOGS) >= 60


@pytest.mark.parametrize("name", _LOGS)
def test_a_real_log(name: str) -> None:
    expected = json.loads((_DATA / "expected.json").read_text())[name]
    text = _log(name)
    assert summary(last_traceback(text)) == expected["last"]
    assert summary(first_failure(text)) == expected["first"]


@pytest.mark.parametrize("name", _LOGS)
@pytest.mark.parametrize("label", ["[rank3]: ", "3: ", " 3: ", "[1,3]<stderr>:"])
def test_the_same_of_a_rank(name: str, label: str) -> None:
    """A label before each line changes the rank alone, unless the log has ranks of its own."""
    text = _log(name)
    plain = last_traceback(text)
    lines = text.removesuffix("\n").split("\n")
    labelled = last_traceback("".join(f"{label}{line}\n" for line in lines))
    assert plain is not None
    assert labelled is not None
    own = plain.rank is not None or "torchrun" in name
    assert own or labelled.rank == 3
    assert (labelled.type, labelled.message) == (plain.type, plain.message)
    assert labelled.cause.frames == plain.cause.frames
    assert [one.type for one in labelled.raised] == [one.type for one in plain.raised]


@pytest.mark.parametrize("name", _LOGS)
def test_what_follows_does_not_belong_to_it(name: str) -> None:
    text = _log(name).rstrip("\n")
    more = (
        "\n\nslurmstepd: error: Detected 1 oom-kill event(s) in StepId=7.batch.\n"
        "srun: error: node1: task 0: Exited with exit code 1\n  rank: 7\ndone\n"
    )
    alone, followed = last_traceback(text), last_traceback(text + more)
    assert alone is not None
    assert followed is not None
    assert (followed.raised, followed.first_line) == (alone.raised, alone.first_line)
    assert followed.last_line == alone.last_line


def test_a_number_before_each_line_is_no_rank_without_a_traceback_behind_it() -> None:
    text = "1: first item\n2: second item\n" + _log("key-3.8.log")
    found = last_traceback(text)
    assert found is not None
    assert found.rank is None
    assert found.first_line == 3


def test_the_first_rank_is_the_cause_though_it_did_not_write_last() -> None:
    last, first = (read(_log("gloo-torchrun.log")) for read in (last_traceback, first_failure))
    assert last is not None
    assert first is not None
    assert (last.rank, first.rank) == (0, 1)


def test_a_lost_connection_is_no_first_failure() -> None:
    """Without torchrun's table: rank 0 wrote first, since rank 1's output took longer."""
    part = _log("gloo-torchrun.log").split("\nW1125")[0].split("[rank0]: Traceback")
    swapped = "[rank0]: Traceback" + part[1] + "\n" + part[0]
    found = first_failure(swapped)
    assert found is not None
    assert (found.rank, found.type) == (1, "ValueError")


def test_the_table_of_torchrun() -> None:
    root = root_cause(_log("killed-torchrun.log"))
    assert root is not None
    assert (root.rank, root.local_rank, root.exit_code) == (1, 1, -9)
    assert root.error_file == ""
    recorded = root_cause(_log("record-torchrun.log"))
    assert recorded is not None
    assert recorded.error_file.endswith("/attempt_0/1/error.json")
    assert [one.message for one in recorded.raised] == ["recorded"]


def test_a_cut_traceback_is_none() -> None:
    lines = _log("key-3.8.log").splitlines(keepends=True)
    assert last_traceback("".join(lines[:-1])) is None


def test_output_of_another_thread_among_the_frames() -> None:
    lines = _log("key-3.8.log").splitlines(keepends=True)
    text = "".join([*lines[:3], "step: 4\n", "epoch 3 of 7\n", *lines[3:]])
    found = last_traceback(text)
    assert found is not None
    assert (found.type, found.line) == ("KeyError", 3)


def test_this_python_agrees(tmp_path: Path) -> None:
    program = tmp_path / "now.py"
    program.write_text(
        "def f():\n    try:\n        [][1]\n    except IndexError:\n        1 / 0\nf()\n"
    )
    done = subprocess.run(
        [sys.executable, program],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env={**os.environ},
    )
    found = last_traceback(done.stderr)
    assert found is not None
    assert (found.type, found.file, found.line) == ("ZeroDivisionError", str(program), 5)
    assert [one.type for one in found.raised] == ["IndexError", "ZeroDivisionError"]


_PIECES = st.sampled_from(
    [
        *(line + "\n" for name in _LOGS for line in _log(name).splitlines()),
        "\n", "  ", "[rank1]: ", "2: ", "[1,0]<stderr>:", "\x1b[31m", '"""\n',
    ]
)  # fmt: skip


@given(st.lists(_PIECES, max_size=60).map("".join))
def test_any_order_of_real_lines_raises_nothing(text: str) -> None:
    for read in (last_traceback, first_failure):
        found = read(text)
        assert found is None or found.raised
    root_cause(text)


@given(st.text(max_size=300))
def test_any_text_raises_nothing(text: str) -> None:
    for read in (last_traceback, first_failure, root_cause):
        read(text)


@pytest.mark.parametrize(
    "piece",
    [
        "\n",
        " ",
        "a",
        "Traceback (most recent call last):\n",
        '  File "a", line 1, in f\n',
        '  File "a", line 1\n',
        "Traceback (most recent call last):\n" + '  File "a", line 1, in f\n' * 50,
        "Fatal Python error: x\n" + '  File "a", line 1 in f\n' * 20,
        "  + Exception Group Traceback (most recent call last):\n",
        "[rank1]: Traceback (most recent call last):\n1: [",
        "During handling of the above exception, another exception occurred:\n\n",
        "Root Cause (first observed failure):\n  rank      : 1 (local_rank: 1)\n",
        "\x1b[",
        "[a1111111",
    ],
)
def test_much_text_takes_little_time(piece: str) -> None:
    text = piece * (LONGEST_TEXT // len(piece))
    began = time.process_time()
    first_failure(text)
    whole = time.process_time() - began
    began = time.process_time()
    first_failure(text[: len(text) // 8])
    eighth = time.process_time() - began
    assert whole < 20
    assert whole < 24 * eighth + 0.5  # linear: 8 times, and a wide margin for a busy machine
