"""The probe's zip: small, and it runs by itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tunnelkit import probe_zip


def test_the_zip_is_within_its_budget() -> None:
    assert len(probe_zip.build().data) <= probe_zip.BUDGET_BYTES


def test_the_zip_runs(tmp_path: Path) -> None:
    file = tmp_path / "probe.zip"
    file.write_bytes(probe_zip.build().data)
    done = subprocess.run([sys.executable, "-I", file, "nothing"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("probe: commands:")
