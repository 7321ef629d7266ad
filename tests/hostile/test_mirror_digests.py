"""A login host that answers about files that nobody has asked for."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.far_path import far_path
from tests.support.mirror_rig import Rig, needs_rsync
from tests.support.mirror_sshd import Sshd
from tunnelkit.errors import MirrorConflict
from tunnelkit.mirror.passes import local_changes

pytestmark = needs_rsync

_EVIL = "somebody's edit\n"


async def test_only_what_was_asked_for_is_taken_from_an_answer(
    rsync_rig: Rig, sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tk asks for the digest of a file that was saved while rsync sent it."""
    rig, real = rsync_rig, shutil.which("sha256sum")
    digest = hashlib.sha256(_EVIL.encode()).hexdigest()
    with far_path(sshd, tmp_path / "bin", without=("sha256sum",)):
        liar = tmp_path / "bin" / "sha256sum"
        names = ("./other.py", "./never/sent", "./../../etc/passwd")
        lies = "".join(f"printf '%s\\n' '{digest} *{name}'\n" for name in names)
        liar.write_text(f'#!/bin/sh\n{lies}echo 1 >>"{tmp_path}/asked"\nexec {real} "$@"\n')
        liar.chmod(0o755)
        file, other = rig.write("a.py", "1\n"), rig.write("other.py", "1\n")
        mirror = await rig.started()
        await mirror.barrier(20)
        (tmp_path / "asked").unlink(missing_ok=True)
        hashed = local_changes.hash_changed

        def changed(*args: Any) -> local_changes.PassPlan:
            plan = hashed(*args)
            if "a.py" in plan.sends and file.read_text() == "2\n":
                file.write_text("3 and longer\n")
            return plan

        monkeypatch.setattr(local_changes, "hash_changed", changed)
        file.write_text("2\n")
        await mirror.barrier(20)
        assert rig.equal() and (tmp_path / "asked").exists()
        # Its own lie makes no edit there tk's.
        rig.write("other.py", _EVIL, far=True)
        other.write_text("2\n")
        with pytest.raises(MirrorConflict, match=r"other\.py"):
            await mirror.barrier(20)
        assert (rig.far / "other.py").read_text() == _EVIL
