"""Black boxes as evidence: whatever the file holds."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.diagnosis.black_box.record import MARK, choose_box, parse_box, parse_boxes
from tunnelkit.diagnosis.ended.rules import judge_end
from tunnelkit.diagnosis.evidence.box import (
    BoxView,
    MemoryLevel,
    ProcessEnd,
    SignalSeen,
)
from tunnelkit.diagnosis.evidence.end import EndView
from tunnelkit.diagnosis.verdict import Certainty, Diagnosis, Stage
from tunnelkit.diagnosis.verdict_json import to_json

_KINDS = ("head", "memory", "node", "minute", "sample", "gone", "oom", "signal", "log", "end")
_KEYS = (
    *("format", "job", "attempt", "node", "uid", "started_s", "level", "limit_bytes", "oom"),
    *("oom_kill", "refused", "time_s", "cpu_s", "rss_bytes", "pid", "parent", "name", "rank"),
    *("code", "signal", "text", "path", "agent", "killed", "holds_agent"),
)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
_LINE = st.dictionaries(st.sampled_from(_KEYS), _VALUES, max_size=12)


def as_text(lines: list[tuple[str, dict[str, Any]]]) -> str:
    head = {"kind": "head", "format": 1, "job": "1"}
    rows = [head, *({"kind": kind, **line} for kind, line in lines)]
    return "".join(json.dumps(row) + "\n" for row in rows)


@given(st.text())
def test_any_text_is_no_box_or_one(text: str) -> None:
    parse_box(text)
    parse_boxes(f"{MARK}1.0.jsonl\n{text}")


@given(st.lists(st.tuples(st.sampled_from(_KINDS), _LINE), max_size=12))
def test_any_values_give_a_verdict_that_can_be_written(
    lines: list[tuple[str, dict[str, Any]]],
) -> None:
    box = parse_box(as_text(lines))
    assert box is not None
    verdicts = judge_end(None, EndView(boxes=(box,)), 5.0, box)
    json.dumps(to_json(Diagnosis("1", Stage.ENDED, verdicts))).encode()


def test_deep_nesting_and_long_lines_are_left_out() -> None:
    text = as_text([("end", {"code": 3})])
    deep = '{"kind":"end","x":' + "[" * 100_000 + "\n"
    long = '{"kind":"end","code":4,"x":"' + "y" * 200_000 + '"}\n'
    box = parse_box(text + deep + long)
    assert box is not None and box.agent_code == 3


def test_another_format_is_left_out() -> None:
    assert parse_box('{"kind":"head","format":2}\n') is None


BOX = BoxView(
    node="n1",
    uid=1000,
    started_s=100.0,
    written_s=400.0,
    holds_agent=True,
    ended_s=400.0,
    agent_code=0,
    memory=(MemoryLevel("job", limit_bytes=1 << 30, oom=1, oom_kill=1),),
    killed_s=390.0,
    victims=(ProcessEnd(7, "python", rank=2, signal=9, ended_s=390.0, rss_bytes=1 << 29),),
)


def test_a_kill_near_the_end_is_the_cause() -> None:
    verdict = judge_end(None, EndView(), 500.0, BOX)[0]
    assert (verdict.code, verdict.certainty) == ("oom-limit", Certainty.PROVEN)
    assert "python (rank 2 on n1)" in verdict.sentence


def test_a_kill_that_tk_s_job_outlived_is_told_and_not_the_cause() -> None:
    box = replace(BOX, ended_s=4000.0, written_s=4000.0)
    verdict = judge_end(None, EndView(), 5000.0, box)[0]
    assert verdict.code == "ok"
    assert any("killed python (rank 2" in one.text for one in verdict.because)


def test_a_likely_victim_is_called_so() -> None:
    unsure = replace(BOX.victims[0], signal=None)
    verdict = judge_end(None, EndView(), 500.0, replace(BOX, victims=(unsure,)))[0]
    assert "most likely python" in verdict.sentence


def test_doubtful_counters_make_a_likely_verdict() -> None:
    level = MemoryLevel("job", limit_bytes=1 << 30, oom=None, oom_kill=1, refused=4)
    verdict = judge_end(None, EndView(), 500.0, replace(BOX, memory=(level,)))[0]
    assert (verdict.code, verdict.certainty) == ("oom-limit", Certainty.LIKELY)


def test_a_kill_in_a_shared_group_without_a_victim_is_not_ours() -> None:
    level = MemoryLevel("above", oom=None, oom_kill=1)
    box = replace(BOX, memory=(level,), victims=())
    assert judge_end(None, EndView(), 500.0, box)[0].code == "ok"


def test_term_of_the_scheduler_s_daemon() -> None:
    term = SignalSeen(15, 399.0, 0, 77, "slurmstepd")
    box = replace(BOX, memory=(), victims=(), killed_s=None, signals=(term,), agent_code=143)
    verdict = judge_end(None, EndView(), 500.0, box)[0]
    assert (verdict.code, verdict.certainty) == ("terminated", Certainty.PROVEN)
    person = replace(box, signals=(SignalSeen(15, 399.0, 1001, 77, "bash"),))
    assert "uid 1001 (bash)" in judge_end(None, EndView(), 500.0, person)[0].sentence


def test_a_record_that_stops() -> None:
    box = replace(BOX, memory=(), victims=(), killed_s=None, ended_s=None, agent_code=None)
    verdict = judge_end(None, EndView(), 500.0, box)[0]
    assert (verdict.code, verdict.certainty) == ("killed-unknown", Certainty.UNKNOWN)


def test_the_box_of_the_last_run_is_chosen() -> None:
    first, second = replace(BOX, attempt=0), replace(BOX, attempt=1, started_s=500.0)
    assert choose_box([first, second], None) == second
    # One of an earlier job with the same number.
    assert choose_box([first], submitted_s=10_000.0) is None
    quiet = replace(second, killed_s=None, node="n2")
    assert choose_box([quiet, second], None) == second


def test_helpers_that_failed_are_no_failures() -> None:
    gone = {"time_s": 1.0, "code": 1, "signal": None, "rank": None}
    lines = [
        ("gone", {**gone, "pid": 5, "parent": 4, "name": "grep"}),
        ("gone", {**gone, "pid": 6, "parent": 3, "name": "python"}),
        ("gone", {**gone, "pid": 7, "parent": 6, "name": "x", "code": None, "signal": 11}),
        ("end", {"agent": 3, "code": 0}),
    ]
    box = parse_box(as_text(lines))
    assert box is not None
    assert [one.pid for one in box.ends] == [6, 7]
