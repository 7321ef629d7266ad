"""`tk why` loads the rules of the job's own stage, and no others."""

from __future__ import annotations

import subprocess
import sys

import pytest

ASK = """
import sys
from tunnelkit.diagnosis.evidence.cluster import ClusterView
from tunnelkit.diagnosis.evidence.end import EndView
from tunnelkit.diagnosis.evidence.job import JobView
from tunnelkit.model import JobState
from tunnelkit.scheduler.inspector import Inspection
from tunnelkit.session.why.diagnose import judge

def rules():
    rooms = ("waiting", "running", "ended")
    return [one for one in rooms if f"tunnelkit.diagnosis.{one}.rules" in sys.modules]

assert rules() == []
state = JobState[sys.argv[1]]
job = JobView("1", state, "FAILED" if state is JobState.ENDED else state.name)
cluster = ClusterView() if state is JobState.PENDING else None
judge(Inspection(1.0, job, cluster, EndView() if state is JobState.ENDED else None), "1")
print(*rules())
"""


@pytest.mark.parametrize(
    ("state", "rules"), [("PENDING", "waiting"), ("RUNNING", "running"), ("ENDED", "ended")]
)
def test_only_the_rules_of_its_stage_are_imported(state: str, rules: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ASK, state], capture_output=True, text=True, check=False
    )
    assert (done.stdout.split(), done.stderr) == ([rules], "")
