"""`tk why --check` ends with 14 only where a script may cancel the job."""

from __future__ import annotations

import pytest

from tunnelkit.cli.views.jobs.why import _is_fatal
from tunnelkit.diagnosis.verdict import Certainty, Verdict
from tunnelkit.diagnosis.verdict_json import verdict_info

PROVEN, LIKELY = Certainty.PROVEN, Certainty.LIKELY


@pytest.mark.parametrize(
    ("code", "certainty", "fatal"),
    [
        ("never", PROVEN, True),
        # Of several partitions only one may be too small, and sums of tk may be wrong.
        ("never", LIKELY, False),
        ("limit-job", LIKELY, False),
        ("busy", PROVEN, False),
        # A job that has failed has failed, whatever the cause.
        ("exception", LIKELY, True),
        ("ok", PROVEN, False),
    ],
)
def test_what_is_fatal(code: str, certainty: Certainty, fatal: bool) -> None:
    assert _is_fatal(verdict_info(Verdict(code, "it ...", certainty, ()))) is fatal
