"""The verdicts on jobs that a reservation or maintenance keeps waiting."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.diagnosis.waiting.clusters import (
    cluster,
    job,
    node,
    verdict,
    window,
)
from tunnelkit.diagnosis.verdict import Certainty


def test_maintenance_with_the_longest_limit_that_ends_before() -> None:
    around = cluster(node("n1"), windows=(window("m1", 30, "n1"),))
    found = verdict(job("ReqNodeNotAvail,_Reserved_for_maintenance"), around)
    assert (found.code, found.certainty) == ("maintenance", Certainty.PROVEN)
    assert "its 1:00:00 would run into maintenance m1, which begins at" in found.sentence
    assert (found.sooner_min, found.next_steps[0].command) == (28, "tk why 50 --start-sooner 28")


def test_maintenance_that_goes_on_now() -> None:
    around = cluster(node("n1", states="maint"), windows=(window("m1", -30, "n1"),))
    found = verdict(job("ReqNodeNotAvail,_Reserved_for_maintenance"), around)
    assert found.code == "maintenance" and "m1 has the nodes that fit until" in found.sentence
    assert found.sooner_min is None


def test_a_reservation_of_other_nodes_is_not_in_the_way() -> None:
    around = cluster(node("n1", idle=0), node("n2", cpus=1), windows=(window("m1", 30, "n2"),))
    assert verdict(job(cpus=2), around).code == "busy"


def test_what_is_free_is_reserved_soon() -> None:
    around = cluster(node("n1", idle=0), node("n2"), windows=(window("m1", 30, "n2"),))
    found = verdict(job(), around)
    assert (found.code, found.certainty, found.sooner_min) == ("maintenance", Certainty.LIKELY, 28)
    assert "n2 is free, but maintenance m1 begins there at" in found.sentence
    assert verdict(job(limit_min=20), around).code == "waiting-unknown"


def test_its_own_reservation_is_not_in_the_way() -> None:
    around = cluster(node("n1", idle=0, states="reserved"), windows=(window("r", -5, "n1"),))
    assert verdict(replace(job(), reservation="r"), around).code == "busy"


def test_reservations_that_do_not_keep_it_out() -> None:
    one = window("r", -10, "n1", maintenance=False)
    around = cluster(node("n1", idle=0, states="mixed reserved"), windows=(one,))
    assert verdict(job(), around).code == "maintenance"
    assert verdict(replace(job(), reservation="a,r"), around).code == "busy"
    for kind in (
        replace(one, magnetic=True),
        replace(one, magnetic=True, users=frozenset({"kim"})),
        replace(one, partial=True),
    ):
        assert verdict(job(), replace(around, windows=(kind,))).code == "busy"
    # It draws no job of somebody else.
    for theirs in (
        replace(one, magnetic=True, users=frozenset({"lee"})),
        replace(one, magnetic=True, accounts=frozenset({"course"})),
    ):
        assert verdict(job(), replace(around, windows=(theirs,))).code == "maintenance"
    ours = replace(one, magnetic=True, accounts=frozenset({"phys", "course"}))
    found = verdict(replace(job(), account="phys"), replace(around, windows=(ours,)))
    assert found.code == "busy"
    # A node that another reservation has as well stays closed.
    both = replace(around, windows=(replace(one, partial=True), replace(one, name="x")))
    assert verdict(job(), both).code == "maintenance"
