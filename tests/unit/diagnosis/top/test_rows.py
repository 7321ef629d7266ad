"""Rows of `tk top`: ranks, GPUs, the one that differs, whatever a node sends."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.diagnosis.test_window import JOB, KEYS, VALUE
from tunnelkit.diagnosis.evidence.window import (
    GpuView,
    MemoryView,
    NodeWindow,
    ProcessView,
    ThreadView,
    parse_window,
)
from tunnelkit.diagnosis.running.look import Look
from tunnelkit.diagnosis.top.history import STEP_S, TopHistory
from tunnelkit.diagnosis.top.rows import (
    gpu_rows,
    node_row,
    process_rows,
    silent_node,
    state_words,
    thread_rows,
)


def rank(number: int, run: float = 1.0, wait: float = 0.0, gpu: int | None = None) -> ProcessView:
    return ProcessView(
        100 + number, rank=number, name="python3", run=run, wait=wait, rss_bytes=1 << 30
    )


def look(*processes: ProcessView, gpus: tuple[GpuView, ...] = (), node: str = "node1") -> Look:
    threads = tuple(ThreadView(one.pid, one.pid, "main", states={"S": 3}) for one in processes)
    window = NodeWindow(node, 2.0, processes=processes, threads=threads, gpus=gpus, host_pids=True)
    return Look(JOB, (window,))


def test_the_rank_that_waits_for_cpus_is_marked() -> None:
    rows = process_rows(look(rank(0), rank(1), rank(2, 0.9, 7.8), rank(3)))
    assert [one["rank"] for one in rows] == [0, 1, 2, 3]
    assert [one["worst"] for one in rows] == ["", "", "waits for CPUs", ""]


def test_nobody_is_marked_where_two_differ_alike_or_nobody_can_say() -> None:
    assert not any(one["worst"] for one in process_rows(look(rank(0), rank(1, 0.0))))
    two = look(rank(0), rank(1), rank(2, 0.0), rank(3, 0.0), rank(4))
    assert not any(one["worst"] for one in process_rows(two))
    noise = look(rank(0, 0.98), rank(1, 1.0), rank(2, 0.91))
    assert not any(one["worst"] for one in process_rows(noise))


def test_a_rank_has_its_gpu_and_the_gpu_that_works_for_the_others_is_marked() -> None:
    gpus = tuple(
        GpuView(at, busy=(busy,), power_w=(watts,), limit_w=300.0, processes={100 + at: 1})
        for at, (busy, watts) in enumerate([(100.0, 92.0), (100.0, 94.0), (31.0, 240.0)])
    )
    shown = look(rank(0), rank(1), rank(2), gpus=gpus)
    assert [one["gpu"] for one in process_rows(shown)] == [0, 1, 2]
    rows = gpu_rows(shown)
    assert [one["worst"] != "" for one in rows] == [False, False, True]
    assert (rows[2]["busy_least"], rows[2]["processes"]) == (31.0, 1)


def test_without_ranks_a_row_is_a_program() -> None:
    shell = ProcessView(1, name="bash")
    program = ProcessView(2, parent=1, name="train", run=0.5)
    [row] = process_rows(look(shell, program))
    assert (row["name"], row["rank"], row["state"]) == ("train", None, "sleeps")
    assert node_row(look(shell, program), look(shell, program).windows[0])["busiest"] == 0.5
    assert silent_node("node2", "no answer yet")["problem"] == "no answer yet"


def sampled(node: str, *rows: dict[str, Any]) -> NodeWindow:
    value = {"version": 1, "seconds": 2, "processes": [{"name": "python3", **row} for row in rows]}
    window = parse_window(json.dumps(value, separators=(",", ":")).encode(), node)
    assert window is not None
    return window


def worker(pid: int, parent: int, number: int, **env: str) -> dict[str, Any]:
    return {"pid": pid, "parent": parent, "rank": number, "env": {"RANK": str(number), **env}}


def test_a_launcher_is_no_rank() -> None:
    """`srun python -m torch.distributed.run`: on the second node it has SLURM_PROCID=1 alone."""
    windows = tuple(
        sampled(
            f"node{at + 1}",
            {"pid": 1, "parent": 9, "rank": at, "env": {"SLURM_PROCID": str(at)}},
            worker(2, 1, 2 * at, SLURM_PROCID=str(at)),
            worker(3, 1, 2 * at + 1, SLURM_PROCID=str(at)),
        )
        for at in (0, 1)
    )
    shown = Look(JOB, windows)
    assert [(one["rank"], one["node"], one["pid"]) for one in process_rows(shown)] == [
        (0, "node1", 2), (1, "node1", 3), (2, "node2", 2), (3, "node2", 3),
    ]  # fmt: skip
    assert 1 not in {one.pid for _, one in shown.programs()}


def test_a_rank_that_sets_its_variables_itself_is_no_launcher() -> None:
    """Programs that it starts later inherit the RANK that its own environment had not."""
    windows = tuple(
        sampled(
            f"node{at}",
            {"pid": 1, "parent": 9, "rank": at, "env": {"SLURM_PROCID": str(at)}},
            worker(2, 1, at, SLURM_PROCID=str(at)),
        )
        for at in (0, 1)
    )
    programs = Look(JOB, windows).programs()
    assert [(one.pid, one.rank) for _, one in programs] == [(1, 0), (2, 0), (1, 1), (2, 1)]


@pytest.mark.parametrize(
    ("used", "shown"),
    [
        ((5 << 30, 2 << 30), 5 << 30),  # the job's, and one step's; four processes share pages
        ((30 << 30,), 16 << 30),  # most of it are files that were read
        ((0,), 16 << 30),  # not known
    ],
)
def test_pages_that_processes_share_count_once_for_a_node(
    used: tuple[int, ...], shown: int
) -> None:
    limit = 32 << 30
    levels = tuple(MemoryView("/job", limit, one, 0.0) for one in used)
    made = look(*(replace(rank(at), rss_bytes=4 << 30) for at in range(4)))
    row = node_row(made, replace(made.windows[0], memory=levels))
    assert (row["rss_bytes"], row["limit_bytes"]) == (shown, limit)


def test_states_in_words() -> None:
    assert state_words(None) == ""
    thread = ThreadView(1, 1, states={"S": 5, "R": 1}, waits={"pipe": 4})
    assert state_words(thread) == "waits for a pipe"
    assert state_words(ThreadView(1, 1, states={"T": 1})) == "is stopped"


def test_a_thread_that_has_ended_is_left_out() -> None:
    window = NodeWindow("node1", 2.0, threads=(ThreadView(1, 1), ThreadView(2, 2, "main")))
    assert [one["tid"] for one in thread_rows(Look(JOB, (window,)))] == [2]


@given(st.dictionaries(st.sampled_from(KEYS), VALUE, max_size=20))
def test_whatever_a_node_sends_gives_rows(fields: dict[str, Any]) -> None:
    data = json.dumps({"version": 1, "seconds": 2, **fields}, separators=(",", ":")).encode()
    window = parse_window(data, "node1")
    if window is not None:
        shown = Look(JOB, (window,))
        json.dumps([process_rows(shown), gpu_rows(shown), thread_rows(shown)])
        json.dumps(node_row(shown, window))


def test_history_is_an_hour_and_bounded() -> None:
    history = TopHistory()
    for at in range(400):
        history.add(at * STEP_S, process_rows(look(rank(0), rank(1, at / 400))), [])
        history.add(at * STEP_S + 1, [], [])
    info = history.info(["node1:rank 1", "node1:rank 7"])
    assert len(info["times_s"]) == 360 and info["times_s"][-1] == 399 * STEP_S
    assert info["rows"]["node1:rank 1"]["run"][-1] == round(399 / 400, 3)
    assert set(info["rows"]["node1:rank 7"]["run"]) == {None}
    node = process_rows(look(*(rank(at) for at in range(250))))
    many = [one | {"key": f"node{at}:{one['key']}"} for at in range(4) for one in node]
    for at in range(400):
        history.add((500 + at) * STEP_S, many, [])
    assert len(history.info([])["times_s"]) == 200_000 // 1000
