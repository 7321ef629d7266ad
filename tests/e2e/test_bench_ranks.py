"""`scripts/bench ranks` measures real ranks; how fast they were is nobody's business here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.lab_fixtures import why_no_lab
from tunnelkit.lab.programs import SLURM_PROGRAMS, missing

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def bench(out: Path, *words: str) -> tuple[str, dict[str, Any]]:
    """Run `scripts/bench ranks`; return its output and what it has measured."""
    done = subprocess.run(
        [sys.executable, "-m", "benchlib", "ranks", *words, "--json", str(out)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "scripts")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=390,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(out.read_text())["results"]["ranks"]


def test_a_simulation_measures_lists_casts_and_looks(tmp_path: Path) -> None:
    printed, found = bench(tmp_path / "found.json", "--simulate", "--ranks", "64", "--rounds", "1")
    rows = found["CPU s"]
    assert len(rows) == 8 and all(row["median"] > 0 for row in rows.values())
    assert "64 simulated ranks" in printed


@pytest.mark.skipif(bool(why_no_lab()), reason=str(why_no_lab()))
@pytest.mark.skipif(bool(missing(SLURM_PROGRAMS)), reason="Slurm is not installed")
@pytest.mark.timeout(400)
def test_a_quick_run_measures_casts_steps_looks_and_memory(tmp_path: Path) -> None:
    printed, found = bench(tmp_path / "found.json", "--ranks", "4", "--rounds", "2")
    far = found["RTT 60, ms"]
    assert all(value > 60 for way in far.values() for value in way["values"]), far
    # The second look of `tk ranks` comes a second after the first.
    looks = found["whole, s"]
    assert min(looks["tk ranks"]["values"]) > 1
    assert all(value > 0 for value in looks["one look, as the session answers it"]["values"])
    assert len(found["step, ms"]) == 2
    assert "laptop's memory (PSS) a rank" in printed
    # Without py-spy the run says so, and measures the rest.
    assert "py-spy dump" in "".join(looks) or "py-spy is not installed" in printed
