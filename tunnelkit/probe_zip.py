"""The probe as two files: one keeps a black box, and is sent with the agent; one samples, and is
sent by stdin when a job is looked at. Each is a zip of its part of probe/, named by its digest.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from tunnelkit.agent_zip import Payload, pack, stripped_files

#: Limit of the size of both together, held by a test.
BUDGET_BYTES = 42 * 1024

_MAIN = b"""import sys
from tunnelkit.probe.main import main
sys.exit(main(sys.argv[1:]))
"""
_PLACE = "tunnelkit/probe/"
_BOTH = ("__init__.py", "main.py")
_OF_BOX = ("black_box/", "cgroup.py", "processes.py", "wait_status.py")


@lru_cache(maxsize=1)
def build() -> Payload:
    """Build the black box from the installed package's sources."""
    return _build((*_BOTH, *_OF_BOX))


@lru_cache(maxsize=1)
def build_sampler() -> Payload:
    """Build what `sample` and `stream` need."""
    names = [name.removeprefix(_PLACE) for name in _sources()]
    return _build((*_BOTH, *(one for one in names if not one.startswith(_OF_BOX))))


@lru_cache(maxsize=1)
def _sources() -> dict[str, bytes]:
    return stripped_files(Path(__file__).parent, "probe")


def _build(parts: tuple[str, ...]) -> Payload:
    files = {"__main__.py": _MAIN, "tunnelkit/__init__.py": b""}
    for name, text in _sources().items():
        if name.removeprefix(_PLACE).startswith(parts):
            files[name] = text
    return pack(files, "probe")
