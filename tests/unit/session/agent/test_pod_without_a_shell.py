"""An image without `sh`, in the words of each container runtime."""

from __future__ import annotations

import pytest

from tunnelkit.session.agent.pod_agent import _has_no_shell

_SPAWN = "executable file not found in $PATH"


@pytest.mark.parametrize(
    ("code", "said", "found"),
    [
        (127, f'OCI runtime exec failed: exec: "sh": {_SPAWN}: unknown', True),
        (255, "executable file `sh` not found in $PATH: No such file or directory", True),
        (255, f'level=error msg="exec failed: exec: \\"sh\\": {_SPAWN}"', True),
        (255, f'level=error msg="exec failed: exec: \\"tar\\": {_SPAWN}"', False),
        (127, "tk: no Python 3.8 or newer in this pod", False),
        (0, f'exec: "sh": {_SPAWN}', False),
    ],
)
def test_the_words_of_containerd_crun_and_runc(code: int, said: str, found: bool) -> None:
    assert _has_no_shell(code, said) is found
