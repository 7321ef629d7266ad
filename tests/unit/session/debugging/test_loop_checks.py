"""What is said of a program that does not exist."""

from __future__ import annotations

import pytest

from tunnelkit.debug.loop_command import LoopCommand
from tunnelkit.session.debugging.loop_checks import no_command


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("python", "if there is python3 only: tk loop python3 ..."),
        ("pythn", "check the spelling, and the PATH of the job: tk run printenv PATH"),
        ("python 2.py", "for a line of shell: tk loop sh -c 'LINE'"),
    ],
)
def test_the_hint_fits_the_program(program: str, says: str) -> None:
    error = no_command(LoopCommand((program,)), "node1")
    assert error.one_line() == f"{program}: not found on node1 — {says}"
