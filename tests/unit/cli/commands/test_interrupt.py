"""`tk interrupt`: its exit codes, and that its help names them."""

from __future__ import annotations

import pytest

from tunnelkit.cli.commands.debug.interrupt import exit_code, interrupt
from tunnelkit.debug.loop_status import InterruptStatus, Pause
from tunnelkit.errors import ExitCode


def process(state: Pause) -> InterruptStatus:
    return {"rank": 0, "node": "", "pid": 1, "paused": False, "state": state, "where": ""}


@pytest.mark.parametrize(
    ("states", "code"),
    [
        (["paused", "paused"], ExitCode.OK),
        (["paused", "native"], ExitCode.TIMEOUT),
        (["native", "nobody"], ExitCode.TIMEOUT),
        (["paused", "nobody"], ExitCode.DEBUG),
        (["waiting"], ExitCode.DEBUG),
        (["ended"], ExitCode.DEBUG),
        ([], ExitCode.DEBUG),
    ],
)
def test_the_exit_code_says_if_all_stand(states: list[Pause], code: ExitCode) -> None:
    assert exit_code([process(one) for one in states]) == code
    assert f" {int(code)}" in (interrupt.__doc__ or "")
