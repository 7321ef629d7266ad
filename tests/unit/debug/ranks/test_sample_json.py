"""Samples pass from the session to its commands as they are."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import given

from tests.unit.debug.ranks.rank_samples import MAIN, STEP, sample, samples
from tunnelkit.debug.ranks.sample import GroupProgress, RankSample
from tunnelkit.debug.ranks.sample_json import from_json, to_json


@given(samples)
def test_a_sample_comes_back_from_json(found: list[RankSample]) -> None:
    for one in found:
        # NaN is equal to nothing; members are a set.
        groups = tuple(replace(group, ranks=tuple(sorted(group.ranks))) for group in one.groups)
        again = from_json(json.loads(json.dumps(to_json(one))))
        assert repr(again) == repr(replace(one, groups=groups))


def test_1024_ranks_do_not_each_send_all_the_others() -> None:
    group = GroupProgress("world", tuple(range(1024)), 4, "all_reduce")
    sent = [json.dumps(to_json(sample(rank, (MAIN, STEP), group))) for rank in (0, 1023)]
    assert all(len(text) < 600 for text in sent)
    first, last = (from_json(json.loads(text)).groups[0].ranks for text in sent)
    assert first == group.ranks and first is last
