"""What a run took, in words, and why an end is told that nobody saw."""

from __future__ import annotations

import pytest

from tests.unit.debug.dap_messages import attached, event, names, read
from tunnelkit.debug.dap.exit_report import cost
from tunnelkit.debug.dap.session import DapSession


@pytest.mark.parametrize(
    ("ran_s", "peak_bytes", "told"),
    [
        (12.34, 1_288_490_189, "after 12.3 s, peak memory 1.2 GB"),
        (0.0, 27 * 2**20, "after 0.0 s, peak memory 27 MB"),
        (99.97, None, "after 1 min 40 s"),
        (3599.6, 999 * 2**20, "after 60 min 0 s, peak memory 999 MB"),
        (7500.0, 1000 * 2**20, "after 2 h 5 min, peak memory 1.0 GB"),
        (None, 1, "peak memory 1 MB"),
        (None, None, ""),
        (1.0, 0, "after 1.0 s"),
    ],
)
def test_cost(ran_s: float | None, peak_bytes: int | None, told: str) -> None:
    assert cost(ran_s, peak_bytes) == told


def test_who_gives_up_says_why_before_the_end() -> None:
    view = attached(DapSession())
    assert view.from_adapter([event("terminated")], 0.0) == []
    told = view.give_up("the allocation is over: job 7: TIMEOUT")
    assert names(told) == ["output", "terminated"]
    assert read(told)[0]["body"] == {
        "category": "important",
        "output": "the allocation is over: job 7: TIMEOUT\n",
    }
    # Said once, and before the adapter is gone as well as after.
    assert view.adapter_gone() == []
    view = attached(DapSession())
    assert names(view.give_up("gone")) == ["output"]
    assert names(view.adapter_gone()) == ["terminated"]
