"""The ranks for `--json`."""

from __future__ import annotations

import json

from hypothesis import given

from tests.unit.debug.ranks import rank_samples
from tests.unit.debug.ranks.rank_samples import LOADS, ROOTS, sample, within, world
from tunnelkit.debug.ranks.arrivals import BlockingCalls, arrivals
from tunnelkit.debug.ranks.sample import ProcessState, RankSample, RankState
from tunnelkit.debug.ranks.stacks import classify
from tunnelkit.debug.ranks_view.view import RanksView
from tunnelkit.debug.ranks_view.view_json import look_json


def view_of(samples: list[RankSample]) -> RanksView:
    return RanksView(
        samples,
        classify(samples, samples, ROOTS),
        arrivals(samples, samples, ROOTS),
        program="train.py",
        took_s=0.5,
        still_s={0: 3.0, 1: 4.0},
        calls=BlockingCalls((("Barrier", (0, 1)),), (2,)),
    )


def test_it_has_all_that_was_found() -> None:
    silent = sample(3, (), state=RankState.SILENT, process=ProcessState("D", "nfs_wait", 1.5))
    found = look_json(
        view_of(
            [
                sample(0, within("all_reduce"), world(5, "all_reduce")),
                sample(1, within("all_reduce"), world(5)),
                sample(2, LOADS, world(4)),
                silent,
            ]
        )
    )
    assert (found["total"], found["answered"], found["nodes"]) == (4, 3, 1)
    assert [(one["name"], one["ranks"], one["unmoved_s"]) for one in found["classes"]] == [
        ("A", [0, 1], 3.0),
        ("B", [2], None),
        ("C", [3], None),
    ]
    assert found["classes"][1]["place"][-1]["line"] == 31
    (arrival,) = found["arrivals"]
    assert arrival["late"] == [{"rank": 2, "behind": 1, "state": "running"}]
    assert arrival["silent"] == [3]
    assert found["mpi_calls"] == [
        {"call": "Barrier", "ranks": [0, 1]},
        {"call": "", "ranks": [2]},
    ]
    assert [one["class"] for one in found["ranks"]] == ["A", "A", "B", "C"]
    assert found["ranks"][0]["groups"] == [
        {"name": "world", "ranks": [], "sequence": 5, "operation": "all_reduce"}
    ]
    assert found["ranks"][3]["process"] == {
        "letter": "D",
        "wchan": "nfs_wait",
        "cpu_s": 1.5,
        "holds_gil": False,
    }


@given(rank_samples.samples)
def test_any_ranks_become_json(samples: list[RankSample]) -> None:
    found = look_json(view_of(list({one.rank: one for one in samples}.values())))
    assert json.loads(json.dumps(found, allow_nan=False)).keys() == found.keys()
