"""`scripts/bench why` asks all its ways once; how fast they were is not looked at here."""

from __future__ import annotations

import json
import os
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
def test_a_round_measures_tk_and_the_hand(tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    words = ["why", "--rounds", "1", "--rtt", "0", "--json", str(out)]
    done = subprocess.run(
        [sys.executable, "-m", "benchlib", *words],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'scripts'}:{ROOT}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())["results"]["why"]
    for kind in ("waiting, s", "failed, s", "running, 1 s of samples, s"):
        ways = found[f"{kind}, RTT 0 ms"]
        assert len(ways) == 3 and all(row["median"] > 0 for row in ways.values())
    # Without seff or nvitop the run says so, and measures the rest.
    for tool, measure in (("seff", "failed, with accounts"), ("nvitop", "a GPU")):
        assert f"{measure}, RTT 0 ms, s" in found or f"- {tool}: " in done.stdout
