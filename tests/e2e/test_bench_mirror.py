"""`scripts/bench mirror` runs and measures what it says; how fast that was is nobody's business
here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab_fixtures import why_no_lab
from tunnelkit.lab.programs import SLURM_PROGRAMS, missing

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(bool(why_no_lab()), reason=str(why_no_lab()))
@pytest.mark.skipif(bool(missing(SLURM_PROGRAMS)), reason="Slurm is not installed")
@pytest.mark.skipif(not shutil.which("rsync"), reason="rsync is not installed")
@pytest.mark.timeout(400)
def test_a_quick_run_measures_every_way_that_is_installed(tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    argv = [sys.executable, "-m", "benchlib", "mirror", "--quick", "--rtt", "5", "--json", str(out)]
    cases = ["edits", "barrier"]  # the others take minutes
    done = subprocess.run(
        [*argv, *(word for case in cases for word in ("--case", case))],
        env={**os.environ, "PYTHONPATH": str(ROOT / "scripts")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=390,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())["results"]["mirror"]
    for note in found["notes"]:
        assert note.endswith("is not installed"), done.stdout
    (rows,) = [rows for name, rows in found.items() if name.startswith("RTT")]
    edits = rows["edit to visible, ms"]
    absent = {note.partition(":")[0] for note in found["notes"]}
    every = {"lsyncd, delay 0", "lsyncd, delay 1", "unison"} - absent
    assert {"tk", *every} < set(edits) and len(edits) == len(every) + 3
    # Not before half a round trip: then something else was measured.
    assert all(value > 2.5 for one in edits.values() for value in one["values"]), edits
    measure = "clean barrier, ms"
    assert all(value > 0 for one in rows[measure].values() for value in one["values"]), measure
    assert "| edit to visible, ms: tk |" in done.stdout
