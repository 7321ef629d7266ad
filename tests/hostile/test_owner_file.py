"""The owner's file tells another user of the cluster whose a mirror is, and no more."""

from __future__ import annotations

import os
import pwd
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.support.other_user import OtherUser
from tunnelkit.mirror.remote.owner import Owner, describe_owner
from tunnelkit.mirror.remote.root import _CLAIM


@pytest.mark.root
def test_another_user_learns_the_name_only(other_user: OtherUser) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        shared, mine = Path(name), Owner("1" * 32, "laptop", "/home/ann/secret", "ann", 1.0)
        shared.chmod(0o777)
        root = shared / "project"
        root.mkdir(mode=0o777)
        root.chmod(0o777)

        def claim(owner: Owner, *become: str) -> tuple[str, str, str]:
            words = [*become, "sh", "-c", _CLAIM, "tk", str(root), owner.dump(), owner.id]
            done = subprocess.run([*words, "refused"], capture_output=True, text=True, check=True)
            state, file, text, _ = done.stdout.split("\0")
            return state, file, text

        state, file, _ = claim(mine)
        assert (state, os.stat(file).st_mode & 0o777) == ("new", 0o600)
        his = Owner("2" * 32, "other", "/home/eve/x", "eve", 2.0)
        state, _, text = claim(his, *other_user.argv())
        me = pwd.getpwuid(os.getuid()).pw_name
        assert (state, describe_owner(text)) == ("refused", f"the user {me} there")
        assert claim(mine)[0] == "own"
