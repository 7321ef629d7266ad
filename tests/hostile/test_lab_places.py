"""The places of labs in /tmp, taken by another user before."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tunnelkit import lab
from tunnelkit.errors import UsageError
from tunnelkit.lab.kube import detached
from tunnelkit.lab.layout import TAG, Layout


@pytest.fixture
def squatted() -> Iterator[Path]:
    """A directory that others may write to, with a kubeconfig and a process that looks right."""
    base = Path(tempfile.mkdtemp(prefix="tkl", dir="/tmp"))
    root = detached.kube_dir(base / "lab")
    root.mkdir()
    root.chmod(0o777)
    (root / "kubeconfig").write_text("users: [{user: {exec: {command: /tmp/evil}}}]\n")
    (root / "log").touch()
    looks = subprocess.Popen(["sleep", "60"], env={**os.environ, TAG: str(root)})
    try:
        yield base / "lab"
    finally:
        looks.kill()
        looks.wait()
        shutil.rmtree(base)


def test_nothing_in_it_is_used_or_removed(squatted: Path) -> None:
    root = detached.kube_dir(squatted)
    for ask in (detached.running, detached.phases):
        with pytest.raises(UsageError, match="there is no cluster in"):
            ask(squatted)
    with pytest.raises(UsageError, match="neither empty nor a lab's"):
        detached.up(squatted)
    detached.down(squatted)
    assert sorted(one.name for one in root.iterdir()) == ["kubeconfig", "log"]
    root.chmod(0o700)
    # What is this user's alone is what `tk lab up --kube` has made: that is ended.
    detached.down(squatted)
    assert not root.exists()


def test_a_labs_state_that_another_user_could_have_written_is_not_believed(squatted: Path) -> None:
    squatted.mkdir()
    squatted.chmod(0o777)
    state = Layout(squatted).state
    state.parent.mkdir(parents=True, exist_ok=True)
    state.write_text("{}")
    for ask in (lab.info, lab.status, lab.down):
        with pytest.raises(UsageError, match="not a directory of yours alone"):
            ask(squatted)
    assert state.read_text() == "{}"
