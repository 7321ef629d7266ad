"""The owner of a process where there is no /proc."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from tunnelkit.mount.mount_table import _words_by_ps

pytestmark = pytest.mark.skipif(shutil.which("ps") is None, reason="no ps here")


def test_ps_is_asked_for_that_process_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a user among its selectors it prints all processes of that user's."""
    child = subprocess.Popen([sys.executable, "-c", "input()", "mark"], stdin=subprocess.PIPE)
    try:
        words = _words_by_ps(child.pid)
        assert words == [os.fsencode(sys.executable), b"-c", b"input()", b"mark"]
        mine = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: mine + 1)
        assert _words_by_ps(child.pid) is None, "another user's"
    finally:
        child.kill()
        child.communicate()
    monkeypatch.undo()
    assert _words_by_ps(child.pid) is None
