"""Of a chain of exceptions the one that ended the program is named, none that was handled."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.diagnosis.ended_cases import job, verdict
from tunnelkit.diagnosis.verdict import Certainty

PROVEN, LIKELY = Certainty.PROVEN, Certainty.LIKELY


def written(program: str, tmp_path: Path) -> str:
    """Return what this Python writes at the end of a program that an exception ends."""
    path = tmp_path / "train.py"
    path.write_text(program)
    done = subprocess.run(
        [sys.executable, path], stderr=subprocess.PIPE, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    return done.stderr


OOM = "class OutOfMemoryError(Exception): __module__ = 'torch'\n"
FULL = 'raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0")'
BODIES = {
    "cache": ("try:\n    {}['k']\nexcept KeyError:\n    raise ConnectionError('no route')\n"),
    "wrapped": (
        "try:\n    {}['k']\nexcept KeyError:\n    try:\n        raise OSError('no route')\n"
        "    except OSError as e:\n        raise RuntimeError('download') from e\n"
    ),
    "module": (
        "import json\ntry:\n    import orjson_fast as json\nexcept ImportError:\n"
        "    json.loads('{')\n"
    ),
    "retry": f"{OOM}try:\n    {FULL}\nexcept OutOfMemoryError:\n    {{}}['retry']\n",
    "again": f"{OOM}try:\n    {FULL}\nexcept OutOfMemoryError:\n    {FULL}\n",
    "caused": f"{OOM}try:\n    {FULL}\nexcept Exception as e:\n    raise OSError('x') from e\n",
    "disk": (
        "try:\n    raise OSError(28, 'No space left on device', '/x')\nexcept OSError:\n"
        "    int('x')\n"
    ),
    "exit": (
        "class Saver:\n    def __enter__(self): pass\n    def __exit__(self, *_):\n"
        "        raise BrokenPipeError('gone')\nwith Saver():\n    {}['label']\n"
    ),
    "finally": (
        f"{OOM}class Run:\n    def finish(self): raise BrokenPipeError('gone')\nrun = Run()\n"
        f"try:\n    {FULL}\nfinally:\n    run.finish()\n"
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("body", "code", "words", "also", "certainty"),
    [
        ("cache", "exception", "ConnectionError: no route", "KeyError: 'k'", LIKELY),
        ("wrapped", "exception", "OSError: no route", "KeyError: 'k'", LIKELY),
        ("module", "exception", "JSONDecodeError: Expecting", "ModuleNotFoundError: No m", LIKELY),
        ("retry", "exception", "KeyError: 'retry'", "torch.OutOfMemoryError: CUDA", LIKELY),
        ("disk", "exception", "ValueError: invalid", "OSError: [Errno 28]", LIKELY),
        ("again", "gpu-oom", "GPU", "", LIKELY),
        ("caused", "gpu-oom", "GPU", "", PROVEN),
        # What was raised on the way out is not why.
        ("exit", "exception", "KeyError: 'label'", "", LIKELY),
        ("finally", "gpu-oom", "GPU", "", LIKELY),
    ],
)
def test_the_exception_that_ended_it_is_named(
    body: str, code: str, words: str, also: str, certainty: Certainty, tmp_path: Path
) -> None:
    found = verdict(job("FAILED", 1), written(BODIES[body], tmp_path))
    assert (found.code, found.certainty) == (code, certainty), found
    assert words in found.sentence
    handled = [one.text for one in found.because if one.label == "also"]
    assert bool(handled) is bool(also)
    assert all(one.startswith(f"raised while it handled {also}") for one in handled)


def test_what_came_on_the_way_out_is_told(tmp_path: Path) -> None:
    found = verdict(job("FAILED", 1), written(BODIES["exit"], tmp_path))
    assert found.consequences == ("on its way out: BrokenPipeError: gone",)
