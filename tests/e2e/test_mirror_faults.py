"""What the mirror says and mends when files, hosts or links fail it."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import signal
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.mirror_rig import Rig, children, forget_proofs, needs_rsync, tree, until
from tunnelkit.errors import ConnectionFailed, MirrorError, TimeoutExpired
from tunnelkit.mirror.agent.channel import MirrorChannel
from tunnelkit.mirror.api import MirrorState
from tunnelkit.mirror.transfer.rsync import Rsync

pytestmark = needs_rsync


async def test_the_node_must_prove(rsync_rig: Rig) -> None:
    rig = rsync_rig
    asked: list[dict[str, str]] = []
    lag = 2

    async def check(digests: Mapping[str, str]) -> list[str]:
        asked.append(dict(digests))
        wrong = []
        for path, text in digests.items():
            if hashlib.sha256((rig.far / path).read_bytes()).hexdigest() != text:
                wrong.append(path)
        return ["main.py"] if len(asked) <= lag else wrong

    rig.write("main.py")
    rig.write("other.py")
    mirror = await rig.started(verify=lambda: check)
    report = await mirror.barrier(20)
    assert report.proven == 2
    assert [set(item) for item in asked] == [{"main.py", "other.py"}, {"main.py"}, {"main.py"}]
    assert (await mirror.barrier(20)).proven == 0
    rig.write("main.py", "edited\n")
    await mirror.barrier(20)
    assert set(asked[-1]) == {"main.py"}
    await forget_proofs(mirror)
    assert (await mirror.barrier(20)).proven == 2
    lag = 10**6
    rig.write("main.py", "again\n")
    with pytest.raises(MirrorError, match="compute node") as caught:
        await mirror.barrier(2)
    assert "main.py" in (caught.value.cause or "")


async def test_dead_link_is_stale_then_resync_repairs(rsync_rig: Rig) -> None:
    rig = rsync_rig
    rig.write("main.py", "1\n")
    mirror = await rig.started()
    rig.sshd.stop()
    rig.write("main.py", "2\n")
    await until(lambda: mirror.status().state is MirrorState.STALE, "stale")
    assert "main.py" in mirror.status().pending_paths
    with pytest.raises(TimeoutExpired, match="not in sync") as caught:
        await mirror.barrier(1)
    assert "main.py" in (caught.value.cause or "")
    rig.sshd.start()
    (rig.far / "main.py").unlink()
    await mirror.resync()
    assert rig.equal()
    assert mirror.status().state is MirrorState.IN_SYNC


async def test_no_link_at_start_is_an_error(rig: Rig) -> None:
    rig.write("main.py")
    rig.sshd.stop()
    mirror = rig.mirror()
    with pytest.raises(ConnectionFailed):
        await mirror.start()
    assert mirror._task is None
    rig.sshd.start()
    await mirror.start()
    assert rig.equal()


async def test_a_path_that_cannot_be_written_is_named(rig: Rig) -> None:
    rig.write("main.py", "1\n")
    rig.write("results", "a file here\n")
    rig.write("results/of_the_job.csv", far=True)
    mirror = await rig.started()
    assert mirror.status().state is MirrorState.PENDING
    rig.write("main.py", "2\n")
    with pytest.raises(MirrorError, match="results"):
        await mirror.barrier(20)
    assert (rig.far / "main.py").read_text() == "2\n"
    assert (rig.far / "results/of_the_job.csv").exists()
    (rig.local / "results").unlink()
    await mirror.barrier(20)
    assert mirror.status().state is MirrorState.IN_SYNC


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
async def test_what_is_forbidden_is_named_and_the_rest_goes_on(rig: Rig) -> None:
    secret = rig.write("secret.key")
    secret.chmod(0)
    closed = rig.write("closed/inner.py").parent
    rig.write("there/file.py", "1\n")
    mirror = await rig.started()
    assert mirror.status().pending_paths == ("secret.key",)
    closed.chmod(0)
    (rig.far / "there").chmod(0o500)
    rig.write("there/file.py", "2\n")
    rig.write("main.py", "2\n")
    try:
        with pytest.raises(MirrorError) as caught:
            await mirror.barrier(20)
        assert "closed" in caught.value.message and "secret.key" in caught.value.message
        assert (rig.far / "main.py").read_text() == "2\n"
        assert (rig.far / "closed/inner.py").read_text() == "x\n"
    finally:
        closed.chmod(0o755)
        secret.chmod(0o600)
    await mirror.barrier(20)
    assert rig.equal()


async def test_a_killed_transfer_leaves_old_or_new(rig: Rig) -> None:
    big = rig.local / "big.bin"
    big.write_bytes(b"old" * (16 << 20))
    mirror = await rig.started()
    big.write_bytes(os.urandom(1 << 20) * 48)
    await until(lambda: any(line.startswith("rsync") for line in children()), "rsync")
    rig.sshd.stop()
    assert (rig.far / "big.bin").read_bytes() in (b"old" * (16 << 20), big.read_bytes())
    rig.sshd.start()
    await mirror.resync()
    assert (rig.far / "big.bin").read_bytes() == big.read_bytes()
    assert mirror.status().state is MirrorState.IN_SYNC
    left = {os.fsdecode(path) for path in tree(rig.far)} - {"big.bin"}
    assert not [path for path in left if not path.startswith(".big.bin.")], left


async def test_a_silent_link_does_not_hang(rsync_rig: Rig) -> None:
    rig = rsync_rig
    rig.write("main.py")
    mirror = await rig.started()
    assert rig.sshd.process is not None
    os.kill(rig.sshd.process.pid, signal.SIGSTOP)  # accepts connections, says nothing
    try:
        rig.write("main.py", "2\n")
        with pytest.raises(TimeoutExpired, match="not in sync"):
            await mirror.barrier(1)
        await until(lambda: mirror.status().state is MirrorState.STALE, "stale")
    finally:
        os.kill(rig.sshd.process.pid, signal.SIGCONT)
    await mirror.resync()
    assert rig.equal()


SCRIBBLE = """\
import sys, time
with open(sys.argv[1], "ab", buffering=0) as stream:
    while True:
        stream.write(b"x")
        time.sleep(0.001)
"""


async def test_a_file_that_never_rests_times_out(rsync_rig: Rig) -> None:
    rig = rsync_rig
    rig.write("main.py")
    noisy = rig.write("noisy.bin", "")
    mirror = await rig.started()
    # A process of its own: a thread would starve beside a busy event loop.
    writer = await asyncio.create_subprocess_exec(sys.executable, "-c", SCRIBBLE, str(noisy))
    try:
        await until(lambda: noisy.stat().st_size > 0, "the first byte")
        with pytest.raises(TimeoutExpired) as caught:
            await mirror.barrier(1.5)
        assert "noisy.bin" in (caught.value.cause or "")
    finally:
        writer.kill()
        await writer.wait()
    await mirror.barrier(20)
    assert rig.equal()


async def test_stop_in_the_middle_leaves_no_process(rig: Rig) -> None:
    rig.write("main.py")
    mirror = await rig.started()
    (rig.local / "big.bin").write_bytes(os.urandom(1 << 20) * 64)
    waiting = asyncio.create_task(mirror.barrier(60))
    await until(lambda: any(line.startswith("rsync") for line in children()), "rsync")
    await mirror.stop()
    with pytest.raises(MirrorError, match="stopped"):
        await waiting
    # Its far end, a child of the rig's sshd, needs a moment to notice.
    ends = "the end of rsync"
    await until(lambda: not [line for line in children() if line.startswith("rsync")], ends)
    await rig.started()
    assert rig.equal()


async def test_a_directory_made_by_an_attempt_without_an_answer_goes_with_its_files(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.write("main.py")
    mirror = await rig.started()
    await mirror.barrier(20)
    lost = _answers_lost_once(monkeypatch)
    rig.write("new/deep/a.py")
    await mirror.barrier(40)
    assert lost == [True]
    assert (rig.far / "new/deep/a.py").exists()
    shutil.rmtree(rig.local / "new")
    await mirror.barrier(20)
    assert not (rig.far / "new").exists()


def _answers_lost_once(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What is sent next is done there, but nobody is told. Holds True once that was so."""
    lost: list[bool] = []

    def losing(whose: type, name: str) -> None:
        real = getattr(whose, name)

        async def lose(*args: Any, **options: Any) -> Any:
            answer = await real(*args, **options)
            if not lost:
                lost.append(True)
                raise ConnectionFailed("the link broke", transient=True)
            return answer

        monkeypatch.setattr(whose, name, lose)

    losing(Rsync, "push")
    losing(MirrorChannel, "answer")
    return lost
