"""Answers of any content: the parsers of PBS raise SchedulerError alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.errors import SchedulerError
from tunnelkit.model import Completed
from tunnelkit.scheduler.pbs.adapter import PBS
from tunnelkit.scheduler.pbs.parse import parse_json
from tunnelkit.scheduler.pbs.states import STATES
from tunnelkit.scheduler.pbs.torque import Torque

_LINES = st.lists(
    st.one_of(
        st.sampled_from(sorted(STATES)).map(lambda letter: f"    job_state = {letter}"),
        st.text(max_size=30).map(lambda text: f"    exec_host = {text}"),
        st.text(max_size=30).map(lambda text: f"    comment = {text}"),
        st.text(max_size=20).map(lambda text: f"    Resource_List.walltime = {text}"),
        st.text(max_size=20).map(lambda text: "\t" + text),
        st.just("Job Id: 14.login"),
        st.just("    Job_Name = tk-x"),
        st.just("    Job_Owner = alice@login"),
        st.text(max_size=30),
    )
)


@given(lines=_LINES, stderr=st.text(max_size=40), code=st.integers(0, 255))
def test_no_text_raises_anything_but_scheduler_errors(
    lines: list[str], stderr: str, code: int
) -> None:
    text = "\n".join(["tk-user alice", "Job Id: 14.login", *lines]).encode()
    _only_scheduler_errors(Completed(code, text, stderr.encode()))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(job=_JSON, jobs=_JSON, now=_JSON)
def test_no_json_raises_anything_but_scheduler_errors(
    job: object, jobs: object, now: object
) -> None:
    for data in ({"Jobs": {"14.login": job}, "timestamp": now}, {"Jobs": jobs}, jobs):
        _only_scheduler_errors(Completed(0, json.dumps(data).encode(), b""))


@given(st.binary(max_size=200), st.binary(max_size=50), st.integers(0, 255))
def test_no_bytes_raise_anything_but_scheduler_errors(out: bytes, err: bytes, code: int) -> None:
    _only_scheduler_errors(Completed(code, out, err))


@given(st.dictionaries(st.sampled_from(["stime", "comment", "exec_host"]), st.text(max_size=30)))
def test_records_come_back_unchanged(attributes: dict[str, str]) -> None:
    text = json.dumps({"Jobs": {"1.s": attributes}})
    records = parse_json(text)
    assert records is not None
    assert records[0].attributes == attributes


def _only_scheduler_errors(answered: Completed) -> None:
    for scheduler in (PBS(), PBS(history=False), Torque()):
        calls: list[Callable[[], object]] = [
            partial(scheduler.parse_query, answered, ["14.login"]),
            partial(scheduler.parse_find, answered, "tk-x"),
            *(
                partial(parse, answered)
                for parse in (
                    scheduler.parse_submit,
                    scheduler.parse_cancel,
                    scheduler.parse_estimate,
                    scheduler.parse_history,
                )
            ),
        ]
        for call in calls:
            try:
                call()
            except SchedulerError as error:
                assert error.one_line()
