"""Who sent a job's last signal, in words."""

from __future__ import annotations

import pytest

from tunnelkit.diagnosis.ended.words import TERM, ended_by
from tunnelkit.diagnosis.evidence.box import SignalSeen

OWN = 1000


@pytest.mark.parametrize(
    ("uid", "name", "words"),
    [
        (0, "slurmstepd", "by the scheduler: cancelled"),
        (OWN, "pbs_mom", "by the scheduler: cancelled"),
        # A root process that has left: the scheduler's most often, but nobody saw that.
        (0, "", "by TERM from root, most often the scheduler"),
        (0, "bash", "by TERM from root (bash)"),
        (OWN, "bash", "by TERM from a process of yours (bash)"),
        (OWN, "", "by TERM from a process of yours"),
        (1001, "python3", "by TERM from uid 1001 (python3)"),
        (None, "", "by TERM; who sent it is not on record"),
    ],
)
def test_who_ended_it(uid: int | None, name: str, words: str) -> None:
    seen = SignalSeen(signal=TERM, time_s=0.0, sender_uid=uid, sender_name=name)
    assert ended_by(seen, OWN).startswith(f"was ended {words}")
