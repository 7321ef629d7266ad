"""An image without `sh`, in the words of each container runtime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tunnelkit.config.load import assemble
from tunnelkit.model import Completed
from tunnelkit.session.agent.pod_agent import _has_no_shell, run_python

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


class Distroless:
    """A link to a pod whose image has Python and nothing else."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    async def run(self, argv: Sequence[str], *, node: str, stdin: bytes = b"") -> Completed:
        self.asked.append(list(argv))
        if argv[0] == "sh":
            return Completed(127, b"", f'exec: "sh": {_SPAWN}: unknown'.encode())
        return Completed(0, b"3.12\n", b"")


async def test_python_runs_there_without_one(tmp_path: Path) -> None:
    settings = assemble(tmp_path, None, cwd=tmp_path, overrides={}, environ={})
    link: Any = Distroless()
    done = await run_python(link, settings.cluster, "train-0", ["-c", "print(1)"])
    assert done.text == "3.12\n"
    assert link.asked[1] == ["python3", "-I", "-S", "-c", "print(1)"]
