"""A process's own entry in /proc/PID/environ, rewritten in place."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CODE = f"""\
import os, sys
sys.path.insert(0, {str(ROOT)!r})
from tunnelkit.debuggee.process_mark import retag
done = retag(*sys.argv[1:])
if os.fork() == 0:
    # What is forked has it from then on, what is executed has it from os.environ.
    sys.stdout.buffer.write(open("/proc/self/environ", "rb").read() + b"=%d" % done)
    sys.stdout.flush()
    os._exit(0)
os.wait()
"""


def retagged(old: str, new: str, environ: dict[str, str]) -> tuple[dict[str, str], bool]:
    """The environment in /proc after `retag`, and what that returned."""
    out = subprocess.run(
        [sys.executable, "-S", "-c", CODE, old, new],
        env=environ,
        stdout=subprocess.PIPE,
        check=True,
        timeout=60,
    ).stdout
    block, _, done = out.rpartition(b"=")
    pairs = [word.partition(b"=") for word in block.rstrip(b"\0").split(b"\0")]
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}, done == b"1"


@pytest.mark.parametrize("position", range(3))
def test_the_tag_is_rewritten_wherever_it_stands(position: int) -> None:
    environ = {"A": "x=1", "B": "ü \n"}
    items = list(environ.items())
    items.insert(position, ("TK_PROCESS", "77.00000001"))
    found, done = retagged("77.00000001", "77.00000002", dict(items))
    assert done and found == {**environ, "TK_PROCESS": "77.00000002"}


@pytest.mark.parametrize(
    ("old", "new"),
    [("77.00000001", "77.2"), ("77.0000000", "77.0000000"), ("88.00000001", "88.00000002")],
)
def test_what_would_not_fit_or_is_not_there_stays(old: str, new: str) -> None:
    environ = {"TK_PROCESS": "77.00000001", "Z": "z"}
    assert retagged(old, new, environ) == (environ, False)


def test_only_that_variable_is_meant() -> None:
    environ = {"NOT_TK_PROCESS": "77.00000001", "TEXT": "TK_PROCESS=77.00000001"}
    assert retagged("77.00000001", "77.00000002", environ) == (environ, False)
