"""A second user of this machine, who attacks: what every feature with a port or a file must meet.

Root becomes `nobody`. An ordinary user's tests have the second ordinary user that
`scripts/ordinary-user` made, by way of `other_user_broker.py`. Either way the other user is started
by an argv, so that any kind of subprocess call will do.
"""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support import other_user_broker

#: Where the broker of an ordinary user's tests listens, and whom it becomes.
SOCKET = "TK_TEST_OTHER_USER_SOCKET"
NAME = "TK_TEST_OTHER_USER"
TIMEOUT_S = 150


@dataclass(frozen=True)
class OtherUser:
    """Somebody else on this machine. `python` is an interpreter that he may run."""

    uid: int
    gid: int
    name: str
    python: str
    become: tuple[str, ...]

    def argv(self, *words: str) -> list[str]:
        """argv that runs `words` as that user, in / and with our stdin, stdout and stderr."""
        return [*self.become, *words]

    def script(self, source: str) -> list[str]:
        """argv that runs Python `source` as that user."""
        return self.argv(self.python, "-I", "-c", source)

    def ask(self, source: str, order: object) -> Any:
        """Run `source` with `order` as JSON on its stdin; return the JSON that it prints."""
        done = subprocess.run(
            self.script(source),
            input=json.dumps(order),
            cwd="/",
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


def why_no_other_user() -> str | None:
    """Why nobody else can be had here, or None."""
    if os.geteuid() == 0 or os.environ.get(SOCKET):
        return None
    return "becoming another user needs root, or scripts/ordinary-user"


@cache
def find_other_user() -> OtherUser:
    """The second user. Raises LookupError where there is none."""
    if reason := why_no_other_user():
        raise LookupError(reason)
    if os.geteuid() == 0:
        entry = pwd.getpwnam("nobody")
        become = (
            "setpriv",
            f"--reuid={entry.pw_uid}",
            f"--regid={entry.pw_gid}",
            "--clear-groups",
            "--",
        )
    else:
        entry = pwd.getpwnam(os.environ[NAME])
        broker = str(Path(other_user_broker.__file__))
        become = (sys.executable, "-I", broker, "run", os.environ[SOCKET])
    return OtherUser(entry.pw_uid, entry.pw_gid, entry.pw_name, _python(become), become)


def _python(become: tuple[str, ...]) -> str:
    """An interpreter that he may run; ours may lie in a home that is closed to others."""
    for candidate in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        argv = [*become, candidate, "-I", "-c", "import json, socket"]
        done = subprocess.run(
            argv, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        if done.returncode == 0:
            return candidate
    raise LookupError("no Python here that another user may run")


@pytest.fixture
def other_user() -> OtherUser:
    """Somebody else on this machine; tests that use it are marked `root`."""
    try:
        return find_other_user()
    except LookupError as error:
        pytest.skip(str(error))
