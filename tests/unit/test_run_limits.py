"""The limits of a whole run (tests/support/run_limits.py), by a pytest of their own."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.run_limits import SLOW_UNTIL, UNTIL, past

_TESTS = """
import pytest
pytest_plugins = ["tests.support.run_limits"]

class Answer:
    def __repr__(self):
        import time
        time.sleep(1)  # a busy machine needs as long for the text of a failure
        return "written"

@pytest.mark.slow
def test_slow():
    pass

def test_quick():
    pass

@pytest.mark.timeout(0.5)
def test_failing():
    answer = Answer()
    assert answer is None

@pytest.fixture
def hanging():
    yield
    import time
    time.sleep(30)

@pytest.fixture
def late():
    import time
    time.sleep(30)

@pytest.mark.timeout(0.5)
def test_clean_up_hangs(hanging):
    assert False

@pytest.mark.timeout(0.5)
def test_set_up_hangs(late):
    pass
"""


def _run(tmp_path: Path, **limits: str) -> str:
    (tmp_path / "test_them.py").write_text(_TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\ntimeout_func_only = true\n")
    words = ["-q", "-ra", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "test_them.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-W", "ignore", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **limits},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout


def test_a_late_run_leaves_out_what_is_slow_and_a_failure_takes_its_time(tmp_path: Path) -> None:
    said = _run(tmp_path, **{SLOW_UNTIL: "1", UNTIL: str(time.time() + 600)})
    assert "2 failed, 1 passed, 1 skipped, 2 errors" in said
    assert "slow, and this run is late" in said
    assert "answer = written" in said or "assert written is None" in said
    assert said.count("E       Failed: Timeout (>0.5s)") == 2


def test_nothing_begins_after_the_end(tmp_path: Path) -> None:
    said = _run(tmp_path, **{SLOW_UNTIL: "1", UNTIL: "2"})
    assert "errors" in said and "passed" not in said
    assert "the time of scripts/test --within is over" in said


@pytest.mark.parametrize(
    ("limit", "now", "over"),
    [(None, 9.0, False), ("", 9.0, False), ("8", 9.0, True), ("9", 8.5, False)],
)
def test_a_limit(limit: str | None, now: float, over: bool) -> None:
    environ = {} if limit is None else {UNTIL: limit}
    assert past(UNTIL, environ, now) is over
