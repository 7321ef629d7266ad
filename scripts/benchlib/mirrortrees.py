"""The trees that `scripts/bench mirror` sends, and a process that looks at where they arrive."""

from __future__ import annotations

import filecmp
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchlib import mirrorwatch
from benchlib.rig import background

#: The mean of a first copy of 10,000 files with 45 MB.
MEAN_BYTES = 4500
TIMEOUT_S = 120.0


def make_tree(root: Path, files: int, *, mean_bytes: int = MEAN_BYTES, seed: int = 1) -> list[str]:
    """`files` files, 20 a directory, of unlike sizes and contents; their relative paths."""
    dice = random.Random(seed)
    names = []
    for number in range(files):
        name = f"pkg{number // 400:03}/mod{number // 20:04}/file{number:06}.py"
        path = root / name
        if number % 20 == 0:
            path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(dice.randbytes(dice.randint(1, 2 * mean_bytes - 1)))
        names.append(name)
    return names


def git(root: Path, *words: str) -> None:
    """A git command in that directory, of nobody's configuration."""
    nobody = ("-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "gc.auto=0")
    subprocess.run(
        ["git", *nobody, *words],
        cwd=root,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"},
        check=True,
    )


def make_branches(root: Path, files: int) -> list[str]:
    """A git repository whose branches `one` (checked out) and `two` differ in every file of the
    list that is returned."""
    git(root, "init", "-q", "-b", "one")
    names = make_tree(root, files, mean_bytes=2000)
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "one")
    git(root, "checkout", "-q", "-b", "two")
    make_tree(root, files, mean_bytes=2000, seed=2)
    git(root, "commit", "-q", "-a", "-m", "two")
    git(root, "checkout", "-q", "one")
    return names


def same_trees(one: Path, other: Path, names: list[str]) -> bool:
    """Whether these files are the same in both, contents read."""
    return not any(filecmp.cmpfiles(one, other, names, shallow=False)[1:])


class Eyes:
    """The process that looks. Made by `eyes`."""

    def __init__(self, process: subprocess.Popen[bytes], scratch: Path) -> None:
        self._process = process
        self._scratch = scratch

    def token_ms(self, file: Path, token: str, edit: Callable[[], int]) -> float:
        """From `edit`'s return value (monotonic ns) to the moment the file begins with `token`."""
        self._ask(token=token, file=str(file), timeout_s=TIMEOUT_S)
        start = edit()
        return (self._seen()["seen_ns"] - start) / 1e6

    def changed_s(
        self, root: Path, names: list[str], edit: Callable[[], int]
    ) -> tuple[float, float]:
        """From `edit`'s return value to the last of these files having changed; and how long
        some were changed and others not."""
        listed = self._scratch / "names.json"
        listed.write_text(json.dumps(names))
        self._ask(changed=str(listed), root=str(root), timeout_s=TIMEOUT_S)
        start = edit()
        seen = self._seen()
        return (seen["seen_ns"] - start) / 1e9, (seen["seen_ns"] - seen["first_ns"]) / 1e9

    def _ask(self, **wish: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(wish).encode() + b"\n")
        self._process.stdin.flush()
        self._seen()  # it looks from now on

    def _seen(self) -> dict[str, int]:
        assert self._process.stdout is not None
        answer: dict[str, int] = json.loads(
            self._process.stdout.readline() or b'{"error": "ended"}'
        )
        if "error" in answer:
            raise RuntimeError(f"bench: {answer['error']}")
        return answer


@contextmanager
def eyes(scratch: Path) -> Iterator[Eyes]:
    """One that looks, until the end of the context."""
    argv = [sys.executable, mirrorwatch.__file__]
    with background(argv, stdout=subprocess.PIPE) as process:
        yield Eyes(process, scratch)


def write_token(file: Path, token: str) -> int:
    """Save the file as an editor does that writes in place; the moment of its begin."""
    size = file.stat().st_size
    start = time.monotonic_ns()
    file.write_text(token + "\n" + "#" * max(0, size - len(token) - 1))
    return start
