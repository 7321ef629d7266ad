"""Faults of the link, the session and the node under the mirror.

The table of all faults of the mirror is in test_mirror_table.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import random
import signal
import time
from collections.abc import Mapping

import pytest

from tests.support import processes
from tests.support.mirror_rig import Rig, forget_proofs, needs_rsync, tree, until
from tests.support.mirror_sshd import descendants
from tests.support.tkrig import Project, eventually
from tunnelkit import lab as tk_lab
from tunnelkit.errors import ConnectionFailed, TimeoutExpired, TunnelkitError
from tunnelkit.lab import LabInfo
from tunnelkit.mirror.api import MirrorState

pytestmark = needs_rsync


def _cut(rig: Rig) -> int:
    """Cut the line alone: no program at either end is killed but ssh."""
    if rig.node is not None:
        rig.node.client.drop_link("cut by the test")
        return 1
    found = [
        one.pid
        for one in processes.look().values()
        if one.program == "ssh" and one.pid in descendants(os.getpid())
    ]
    return processes.kill(found)


async def _far_processes(rig: Rig) -> list[int]:
    """All that serves the mirror on the cluster's side."""
    assert rig.sshd.process is not None
    agent = [await rig.node.pid()] if rig.node is not None else []
    return [*descendants(rig.sshd.process.pid), rig.sshd.process.pid, *agent]


async def test_5_a_link_killed_in_the_middle_leaves_old_or_new(rig: Rig) -> None:
    dice = random.Random(5)
    versions = [bytes([65 + number]) * (24 << 20) for number in range(2)]
    big = rig.local / "big.bin"
    big.write_bytes(versions[0])
    mirror = await rig.started()
    far = rig.far / "big.bin"
    cuts = 0
    for number in range(1, 6):
        content = dice.randbytes(1 << 20) * 24
        versions.append(content)
        big.write_bytes(content)
        await until(lambda: mirror.status().state is not MirrorState.IN_SYNC, "its begin")
        await asyncio.sleep(dice.random() * 0.25)
        cuts += _cut(rig)
        assert far.read_bytes() in versions, f"half a file after cut {number}"
        await mirror.barrier(90)
        assert far.read_bytes() == content
    assert cuts, "nothing was cut"
    await mirror.resync()
    # The far end hears of the cut by its own pace, and clears up.
    await until(lambda: set(tree(rig.far)) == {b"big.bin"}, "no temporary", 60)


#: 15 s, and what this test's own looking takes on a busy machine.
_NOTICED_S = 18.0


@pytest.mark.timeout(300)
@pytest.mark.logins(2)
async def test_6_a_black_hole_is_told_and_nothing_hangs(project: Project, healed: LabInfo) -> None:
    await project.up("node1", "--cpus", "2")
    await project.tk("sync")
    tk_lab.cut(healed.dir)
    project.write("2.py", "print('in the hole')\n")
    began = time.monotonic()
    done = await project.tk("sync", "--timeout", "3", code=12)
    assert "2.py" in done.err
    ready = await project.tk("ready", "--sync", "--timeout", "3", code=None)
    assert ready.code != 0, "F5 would have run the old code"

    async def is_stale() -> bool:
        return (await project.status())["mirror"]["state"] == "stale"

    while not await is_stale():
        assert time.monotonic() - began < _NOTICED_S, "not told as stale"
    print(f"stale after {time.monotonic() - began:.1f} s")
    tk_lab.heal(healed.dir)
    await project.tk("sync")
    assert project.remote("2.py").read_text() == "print('in the hole')\n"
    assert (await project.status())["mirror"]["state"] == "in_sync"


async def test_22_a_barrier_waits_for_the_transfer_and_names_what_is_pending(rig: Rig) -> None:
    rig.write("main.py")
    mirror = await rig.started()
    agent = await _far_processes(rig)
    (rig.local / "big.bin").write_bytes(os.urandom(1 << 20) * 64)
    await until(lambda: "big.bin" in mirror.status().pending_paths, "the transfer")
    assert rig.sshd.process is not None
    frozen = {*descendants(rig.sshd.process.pid), *agent}
    for pid in frozen:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    waiting = None
    try:
        if not (rig.far / "big.bin").exists():
            with pytest.raises(TimeoutExpired) as caught:
                await mirror.barrier(1)
            assert "big.bin" in (caught.value.cause or "")
            waiting = asyncio.create_task(mirror.barrier(90))
            await asyncio.sleep(0.2)
            assert not waiting.done()
    finally:
        for pid in frozen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
    await (waiting or mirror.barrier(90))
    assert rig.equal()


async def test_30_a_node_that_sees_files_5_s_late(rsync_rig: Rig) -> None:
    """The login host has the new content at once; what the node reads is 5 s old."""
    rig = rsync_rig  # over the wire it is the node itself that writes
    lag_s = 5.0
    seen: dict[str, tuple[float, str]] = {}
    asked = 0

    def digest(path: str) -> str:
        with contextlib.suppress(OSError):
            return hashlib.sha256((rig.far / path).read_bytes()).hexdigest()
        return ""

    async def check(digests: Mapping[str, str]) -> list[str]:
        nonlocal asked
        asked += 1
        differing = []
        for path, wanted in digests.items():
            now, found = time.monotonic(), digest(path)
            since, known = seen.get(path, (now, ""))
            if known != found:
                since = now
            seen[path] = (since, found)
            if found != wanted or now - since < lag_s:
                differing.append(path)
        return differing

    rig.write("main.py", "1\n")
    mirror = await rig.started(verify=lambda: check)
    for number in range(2):
        rig.write("main.py", f"{number} of late\n")
        before = time.monotonic()
        report = await mirror.barrier(90)
        assert time.monotonic() - before >= lag_s
        assert report.proven == 1 and asked > 1
        assert digest("main.py") == seen["main.py"][1]
        asked = 0
    # A barrier that has less patience names the file, and does not call it in sync.
    rig.write("main.py", "too late\n")
    with pytest.raises(TunnelkitError) as caught:
        await mirror.barrier(2)
    assert "main.py" in caught.value.one_line()


@pytest.mark.timeout(300)
@pytest.mark.logins(2)
async def test_28_a_stale_master_is_made_again_with_one_login(
    project: Project, healed: LabInfo
) -> None:
    await project.up("node1", "--cpus", "2")
    await project.tk("sync")
    processes.kill(project.ssh_processes())  # their sockets stay behind
    project.write("2.py", "print('after the master')\n")
    results = await asyncio.gather(*(project.tk("sync", "--json") for _ in range(4)))
    assert all(done.code == 0 for done in results)
    assert project.remote("2.py").read_text() == "print('after the master')\n"

    async def is_ready() -> bool:
        return bool((await project.status())["state"] == "ready")

    while not await is_ready():
        await asyncio.sleep(0.05)


@pytest.mark.timeout(300)
@pytest.mark.logins(login=2)
async def test_29_another_node_is_seeded_and_proven_anew(project: Project) -> None:
    for number in range(20):
        project.write(f"pkg/{number}.py", f"{number}\n")
    status = await project.up("node1", "--cpus", "2")
    await project.tk("sync")
    await project.tk("down")
    # What is lost and what is changed while nobody looks: the one comes back, the other is told.
    project.remote("pkg/3.py").unlink()
    edited = project.remote("pkg/4.py")
    before = edited.stat()
    edited.write_text("!\n")
    os.utime(edited, ns=(before.st_atime_ns, before.st_mtime_ns))
    again = await project.up("node2", "--cpus", "2")
    assert again["agent"]["node"] == "node2" != status["agent"]["node"]
    done = await project.tk("sync", "--json", code=None)
    assert project.remote("pkg/3.py").read_text() == "3\n"
    assert edited.read_text() == "!\n", "an edit there was overwritten"
    assert done.code == 9 and "pkg/4.py" in done.err, done
    await project.tk("sync", "--ours", "pkg/4.py")
    await project.tk("sync")
    assert edited.read_text() == "4\n"


async def test_29_forgotten_proofs_are_had_again_from_the_new_node(rsync_rig: Rig) -> None:
    rig = rsync_rig
    nodes: list[set[str]] = [set(), set()]
    at = 0

    async def check(digests: Mapping[str, str]) -> list[str]:
        nodes[at].update(digests)
        return []

    names = {f"{number}.py" for number in range(20)}
    for name in names:
        rig.write(name)
    mirror = await rig.started(verify=lambda: check)
    await mirror.barrier(60)
    at = 1
    await forget_proofs(mirror)
    assert (await mirror.barrier(60)).proven == 20
    assert nodes == [names, names]


async def test_23_no_lock_is_left_by_a_link_that_died_at_the_start(rig: Rig) -> None:
    for number in range(50):
        rig.write(f"{number}.py")
    for _ in range(3):
        mirror = rig.mirror()
        starting = asyncio.create_task(mirror.start())
        await asyncio.sleep(random.random() * 0.3)
        rig.sshd.stop()
        with contextlib.suppress(ConnectionFailed, TimeoutExpired):
            await starting
        await mirror.stop()
        rig.sshd.start()
    mirror = await rig.started()
    await mirror.barrier(60)
    assert rig.equal()


async def test_23_what_a_link_that_died_left_of_its_questions_goes(rsync_rig: Rig) -> None:
    """Names in its target, by which the mirror asks whether the file system tells them apart."""
    rig = rsync_rig
    rig.write("a.py")
    over = await asyncio.create_subprocess_exec("true")
    await over.wait()
    for name in (f".tk-probe-{over.pid}", f".tk-probe-{over.pid}\u00e9"):
        rig.write(name, far=True)
    at_work = rig.write(f".tk-probe-{os.getpid()}", far=True)
    # Killed, and not reaped yet; killed long ago, and another process has its pid.
    zombie = os.fork()
    if zombie == 0:
        os._exit(0)
    os.waitid(os.P_PID, zombie, os.WEXITED | os.WNOWAIT)
    rig.write(f".tk-probe-{zombie}", far=True)
    old = rig.write(f".tk-probe-{os.getppid()}", far=True)
    os.utime(old, (time.time() - 180,) * 2)
    mirror = await rig.started()
    await mirror.barrier(20)
    assert at_work.exists(), "another one's, who is asking now"
    at_work.unlink()
    assert rig.equal()
    os.waitpid(zombie, 0)


@pytest.mark.logins(2)
async def test_the_session_says_stale_by_itself(project: Project, healed: LabInfo) -> None:
    """Reset, not silent: told without anybody asking for a barrier."""
    await project.up("node1", "--cpus", "2")
    watch = await project.terminal("sync", "--watch")
    await watch.line("in sync")
    tk_lab.reset(healed.dir)
    project.write("2.py", "print('no link')\n")
    await watch.line("stale")
    tk_lab.heal(healed.dir)
    await project.tk("sync")
    await eventually(
        lambda: project.remote("2.py").read_text() == "print('no link')\n", "it arrives"
    )


@pytest.mark.logins(2)
async def test_no_link_to_the_node_is_no_proof_even_if_nothing_was_edited(
    project: Project, healed: LabInfo
) -> None:
    await project.up("node1", "--cpus", "2")
    await project.tk("sync", "--wait")
    watch = await project.terminal("sync", "--watch")
    await watch.line("in sync")
    tk_lab.reset(healed.dir)

    async def is_reconnecting() -> bool:
        return (await project.status())["state"] == "reconnecting"

    while not await is_reconnecting():
        await asyncio.sleep(0.05)
    done = await project.tk("ready", "--sync", "--timeout", "2", code=None)
    assert done.code != 0, done
    done = await project.tk("sync", "--wait", "--timeout", "2", code=12)
    assert "the compute node has not read the files back" in done.err
    tk_lab.heal(healed.dir)
    await project.tk("sync", "--wait")


async def test_a_barrier_ends_with_the_allocation(project: Project, healed: LabInfo) -> None:
    status = await project.up("node1", "--cpus", "2")
    terminal = await project.loop("python", "2.py")
    agent = int(status["agent"]["pid"])
    os.kill(agent, signal.SIGSTOP)  # a node that hangs
    project.write("2.py", "print('never read')\n")
    waiting = asyncio.create_task(project.tk("ready", "--sync", "--timeout", "80", code=None))
    await eventually(project.remote("2.py").exists, "the mirror is there")
    # Not by scancel: with every signal it sends CONT first, and the agent, awake for the 15 ms
    # before TERM, might read all back.
    os.kill(agent, signal.SIGKILL)
    done = await waiting
    # The session knows it from the scheduler, or from the agent's last word: whoever is first.
    assert done.code in (4, 8), done
    assert "is over" in done.err or "has ended" in done.err
    assert await terminal.ended() == 8
    # A killed agent ends nothing of its own, and the lab's Slurm has no cgroups.
    processes.kill(project.cluster_processes())
    project.forget_killed_agents()
