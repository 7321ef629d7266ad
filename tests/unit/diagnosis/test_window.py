"""The probe's answer as a view: whatever the far side sends."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.diagnosis.evidence.job import JobView, NodeNeed
from tunnelkit.diagnosis.evidence.window import MOST_BYTES, NodeWindow, cpu_set, parse_window
from tunnelkit.diagnosis.running.rules import judge_running
from tunnelkit.model import JobState

JOB = JobView("7", JobState.RUNNING, "RUNNING", need=NodeNeed(cpus=4))
KEYS = sorted(
    {
        *("version", "seconds", "rounds", "processes", "threads", "pid", "tid", "parent", "rank"),
        *("name", "argv", "env", "run", "wait", "wanting", "states", "waits", "cpu_busy", "quotas"),
        *("cpus", "periods", "throttled", "throttled_s", "frozen", "memory", "limit_bytes"),
        *("used_bytes", "hits_a_second", "stalled", "places", "path", "kind", "source", "answers"),
        *("ops", "nfs", "busiest", "ms", "gpu", "gpus", "busy", "power_w", "reasons"),
        *("reason_samples", "total_bytes", "host_pids", "log_grew", "cpus_allowed", "mounts"),
        *("io", "rchar", "syscr", "major_faults", "swap_bytes", "error", "D", "R", "S", "T"),
        *("futex", "8", "0", "index", "uuid", "nspid"),
    }
)
LEAF = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.sampled_from(["0-3", "python3", "futex", "nfs", "0", "/d"]),
    st.text(max_size=20),
)
VALUE = st.recursive(
    LEAF,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=8)
    ),
    max_leaves=40,
)


@given(st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    parse_window(data, "node1")
    parse_window(b'{"version":1,' + data, "node1")


@given(st.dictionaries(st.sampled_from(KEYS), VALUE, max_size=20), st.floats(0.1, 100))
def test_any_object_can_be_judged(value: dict[str, Any], seconds: float) -> None:
    whole = {"version": 1, **value, "seconds": seconds}
    whole = {"version": 1, **{key: one for key, one in whole.items() if key != "version"}}
    found = parse_window(json.dumps(whole, separators=(",", ":")).encode(), "node1")
    assert found is not None and found.node == "node1"
    assert judge_running(JOB, [found, found], 0.0)


def test_words_before_the_answer_are_left_out() -> None:
    found = parse_window(b'Welcome to node1\n{"version":1,"seconds":10}\n', "n")
    assert found == NodeWindow("n", 10.0)


def test_too_long_an_answer_is_none() -> None:
    assert parse_window(b'{"version":1,"seconds":10}' + b" " * MOST_BYTES, "n") is None
    assert parse_window(b'{"version":1,"seconds":0}', "n") is None
    assert parse_window(b'{"version":1,' + b"[" * 100_000, "n") is None


def test_cpu_sets() -> None:
    assert cpu_set("0-3,8") == {0, 1, 2, 3, 8}
    assert cpu_set("") == cpu_set("a-b,-1,99999") == frozenset()
    assert len(cpu_set("0-4095")) == 4096
