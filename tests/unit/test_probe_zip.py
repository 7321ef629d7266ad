"""The probe's zips: small, and each runs by itself."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tunnelkit import probe_zip
from tunnelkit.agent_zip import Payload


def test_the_zips_are_within_their_budget() -> None:
    sizes = [len(one.data) for one in (probe_zip.build(), probe_zip.build_sampler())]
    assert sum(sizes) <= probe_zip.BUDGET_BYTES and max(sizes) <= 40 * 1024


def run(data: bytes, tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    file = tmp_path / "probe.zip"
    file.write_bytes(data)
    return subprocess.run([sys.executable, "-I", file, *words], capture_output=True, text=True)


@pytest.mark.parametrize(
    ("build", "command"),
    [
        (probe_zip.build, "box"),
        (probe_zip.build_sampler, "sample"),
        (probe_zip.build_sampler, "stream"),
    ],
)
def test_a_zip_runs_its_commands(
    build: Callable[[], Payload], command: str, tmp_path: Path
) -> None:
    assert run(build().data, tmp_path, "nothing").stderr.startswith("probe: commands:")
    # Words that it does not know: it could be imported.
    done = run(build().data, tmp_path, command, "--what")
    assert done.returncode == 2, done.stderr
