"""A file is saved after it was hashed and before it is sent: tk knows what arrived all the same."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.far_path import far_path
from tests.support.mirror_rig import Rig, needs_rsync, until
from tests.support.mirror_sshd import Sshd
from tunnelkit.mirror.passes import local_changes
from tunnelkit.mirror.transfer.base import Known
from tunnelkit.mirror.transfer.tar import TarTransfer
from tunnelkit.mirror.tree.scanner import lstat

pytestmark = [pytest.mark.slow, needs_rsync]  # and its sshd


@pytest.fixture
def rig(rsync_rig: Rig) -> Rig:
    """Without an agent, so that every file goes by the transfer."""
    return rsync_rig


@pytest.mark.parametrize("way", ["rsync", "tar"])
async def test_what_changed_after_it_was_read_is_known_after_a_kill_9(
    rig: Rig, sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Tar notes what it sends, and tk asks for what rsync has sent: also of pass after pass."""
    with far_path(sshd, tmp_path / "bin", without=("rsync",) if way == "tar" else ()):
        file, link = rig.write("a.py", "1\n"), rig.local / "link"
        link.symlink_to("before")
        await (await rig.started()).stop()
        file.write_text("second\n")
        link.unlink()
        link.symlink_to("second")
        hashed, looked = local_changes.hash_changed, 0

        def changed_then_killed(*args: Any) -> local_changes.PassPlan:
            nonlocal looked
            looked += 1
            if looked > 6:
                raise OSError("killed")
            plan = hashed(*args)
            assert plan.sends.keys() == {"a.py", "link"}
            file.write_text(f"nobody has read this {looked}\n")
            link.unlink()
            link.symlink_to(f"never read {looked}")
            return plan

        with monkeypatch.context() as patch:
            patch.setattr(local_changes, "hash_changed", changed_then_killed)
            mirror = await rig.started()
            await until(lambda: looked > 6, "the last look")
            await mirror.stop()
        assert file.read_text() == "nobody has read this 6\n"
        assert rig.equal()
        file.unlink()
        link.unlink()
        mirror = await rig.started()
        report = await mirror.barrier(20, allow_deletes=True)
        assert (report.kept, mirror.status().conflicts) == ((), ())
        assert rig.equal()


@pytest.mark.parametrize("is_full", [False, True], ids=["noted", "disk full"])
async def test_other_content_is_noted_before_it_is_there(rig: Rig, is_full: bool) -> None:
    rig.write("same", "same\n")
    rig.write("a.py", "before\n")
    entries = {name: lstat(str(rig.local), name) for name in ("a.py", "same")}
    seen = {name: entry for name, entry in entries.items() if entry is not None}
    assert len(seen) == 2
    rig.write("a.py", "after\n")
    rig.far.mkdir(parents=True)
    noted: list[Mapping[str, str]] = []

    async def note(digests: Mapping[str, str]) -> None:
        assert list(rig.far.glob("*")) == [], "nothing is in place yet"
        noted.append(dict(digests))
        if is_full:
            raise OSError(errno.ENOSPC, "no space")

    transfer = TarTransfer(rig.remote, str(rig.local), far_tar="tar (GNU tar) 1.34")
    push = transfer.push(["a.py", "same"], str(rig.far), size_bytes=9, known=Known(seen, note))
    if is_full:
        with pytest.raises(OSError, match="no space"):
            await push
        assert list(rig.far.glob("*")) == []
    else:
        assert (await push).exit_code == 0
        assert rig.equal()
    assert noted == [{"a.py": hashlib.sha256(b"after\n").hexdigest()}]
