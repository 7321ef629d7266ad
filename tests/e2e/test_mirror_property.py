"""Whatever is edited, cut and killed: after a barrier both trees are equal, nothing foreign lost.

A seeded person edits (tests/support/mirror_edits.py) while the link is cut and mirror, session or
agent are killed now and then, and jobs on the cluster write files of their own. TK_SOAK_MIRROR_S
says for how long (12 s), TK_SOAK_SEED which person; both are in the output of a failure.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.support import processes
from tests.support.far_path import far_path
from tests.support.mirror_child import Child
from tests.support.mirror_edits import Edits, Outputs, differences
from tests.support.mirror_rig import Rig, made_rig, needs_rsync
from tests.support.mirror_sshd import Sshd
from tests.support.tkrig import Project
from tunnelkit import lab as tk_lab
from tunnelkit.lab import LabInfo
from tunnelkit.mirror.agent import batch_reader

pytestmark = needs_rsync

SOAK_S = float(os.environ.get("TK_SOAK_MIRROR_S", "12"))
_BARRIER_S = 90.0
_STAGED_S = 20.0
#: After a fault an rsync that nobody waits for may still write; the mirror looks for that so long.
_STRAGGLING_S = 45.0
_BIG_BYTES = 3000
#: Soon gone by itself: staged files, and the question which names a file system tells apart.
PASSING = (".tk-part-", ".tk-probe-")


class Soak:
    """The person, the jobs, and what was done since the last good barrier."""

    def __init__(self, edits: Callable[[random.Random], Edits]) -> None:
        self.seed = int(os.environ.get("TK_SOAK_SEED", time.time_ns() % 1_000_000))
        self.dice = random.Random(self.seed)
        self.edits = edits(self.dice)
        self.done: list[str] = []
        #: Where what is wrong now began, perhaps.
        self._before: list[str] = []
        self.rounds = 0
        self._ends = time.monotonic() + SOAK_S
        self._fault_at = -_STRAGGLING_S

    def goes_on(self) -> bool:
        return time.monotonic() < self._ends or self.rounds < 3

    def note(self, text: str) -> None:
        self.done.append(text)
        if text.startswith("-- ") and text.endswith(("cut", "killed", "back", "fails")):
            self._fault_at = time.monotonic()

    @property
    def settled_at(self) -> float:
        """When the last fault has no consequence any more (monotonic)."""
        return self._fault_at + _STRAGGLING_S

    def some(self, outputs: Outputs) -> None:
        """A few edits, at the pace of a person, a script, or git."""
        pause_s = self.dice.choice([0.0, 0.0, 0.005, 0.05])
        for _ in range(self.dice.randint(1, 12)):
            number = self.dice.random()
            if number < 0.1:
                self.note(outputs.write())
            elif number < 0.15:
                self.note(outputs.meet())
            else:
                self.note(self.edits.one())
            time.sleep(self.dice.random() * pause_s)

    def check(self, problems: list[str]) -> None:
        """After a barrier."""
        if problems:
            print("\n".join(["earlier rounds:", *self._before]))
        assert not problems, self.told("; ".join(problems[:10]))
        self._before += [f"{self.rounds}: {one}" for one in self.done]
        self.done.clear()
        self.rounds += 1

    def told(self, what: str) -> str:
        steps = "\n  ".join(self.done)
        return f"seed {self.seed}, round {self.rounds}: {what}\nsince the last barrier:\n  {steps}"


def problems(local: Path, far: Path, outputs: Outputs, settled_at: float) -> list[str]:
    """What is wrong. While a killed agent has no successor all goes by rsync, and what was staged
    waits for that successor: it may take its time. A mirror that comes back may look once more at
    its root meanwhile. What a straggling rsync brings is deleted soon after."""
    ends = time.monotonic() + _STAGED_S
    while True:
        found = [*differences(local, far, outputs), *outputs.lost()]
        passing = any(name in one for name in PASSING for one in found)
        late = bool(found) and all(": only there, " in one for one in found)
        if time.monotonic() > (ends if passing else settled_at if late else 0.0):
            return found
        time.sleep(0.05)


@pytest.fixture(params=["rsync", "tar", "live", "big by rsync", "big over the wire"])
async def way(
    request: pytest.FixtureRequest, sshd: Sshd, tmp_path: Path
) -> AsyncIterator[tuple[Rig, int]]:
    """A rig for each way that files can go; and from which size on a file counts as big."""
    without = ("rsync",) if request.param in ("tar", "big over the wire") else ()
    big_bytes = _BIG_BYTES if request.param.startswith("big") else batch_reader.WHOLE_BYTES
    with far_path(sshd, tmp_path / "bin", without=without):
        async with made_rig(sshd, tmp_path, live=request.param not in ("rsync", "tar")) as rig:
            yield rig, big_bytes


@pytest.mark.timeout(SOAK_S + 400)
def test_equal_after_every_barrier(way: tuple[Rig, int]) -> None:
    rig, big_bytes = way
    soak = Soak(lambda dice: Edits(rig.local, dice))
    print(f"TK_SOAK_SEED={soak.seed}")
    rig.write("f0.py", "the first\n")
    outputs = Outputs(rig.far, rig.local, soak.dice)
    child = Child(rig, big_bytes=big_bytes)
    child.start()
    cuts = kills = agents = 0
    try:
        while soak.goes_on():
            down = killed = False
            soak.some(outputs)
            for _ in range(soak.dice.randint(0, 2)):
                number = soak.dice.random()
                if number < 0.25 and not down:
                    time.sleep(soak.dice.random() * 0.3)  # in the middle of a transfer, perhaps
                    rig.sshd.stop()
                    soak.note("-- link cut")
                    down, cuts = True, cuts + 1
                elif number < 0.4 and child.kill_agent():
                    soak.note("-- agent killed")
                    agents += 1
                elif number < 0.55 and not killed:
                    time.sleep(soak.dice.random() * 0.3)
                    child.kill()
                    soak.note("-- mirror killed")
                    killed, kills = True, kills + 1
                soak.some(outputs)
            if down:
                rig.sshd.start()
                soak.note("-- link back")
            try:
                if killed:
                    child.start()
                if soak.dice.random() < 0.3:
                    soak.note("-- edits while the barrier is asked for again and again")
                    child.ask(f"barrier {_BARRIER_S}")
                    soak.some(outputs)
                soak.note(f"-- {child.ask(f'barrier {_BARRIER_S}')}")
            except AssertionError as error:
                pytest.fail(soak.told(str(error)))
            soak.check(problems(rig.local, rig.far, outputs, soak.settled_at))
    finally:
        child.close()
        if rig.sshd.process is None:
            rig.sshd.start()
    print(f"{soak.rounds} barriers, {cuts} cuts, {kills} kills, {agents} agents killed")


@pytest.mark.timeout(SOAK_S + 600)
async def test_equal_after_every_barrier_of_a_session(project: Project, healed: LabInfo) -> None:
    keep = frozenset(os.listdir(project.dir))
    soak = Soak(lambda dice: Edits(project.dir, dice, keep=keep))
    print(f"TK_SOAK_SEED={soak.seed}")
    status = await project.up("node1", "--cpus", "2")
    outputs = Outputs(project.remote(), project.dir, soak.dice)
    # One of each for sure, then by chance.
    faults = ["cut", "agent", "session", "ssh"]
    while soak.goes_on() or faults:
        soak.some(outputs)
        fault = faults.pop() if faults else soak.dice.choice(["", "", "", "cut", "ssh", "session"])
        time.sleep(soak.dice.random() * 0.3)
        if fault == "cut":
            soak.dice.choice([tk_lab.cut, tk_lab.reset])(healed.dir)
        elif fault == "ssh":
            processes.kill(project.ssh_processes())
        elif fault == "agent":
            processes.kill([status["agent"]["pid"]])
        elif fault == "session":
            os.kill(status["pid"], signal.SIGKILL)
        soak.note(f"-- {fault or 'nothing'} fails")
        soak.some(outputs)
        if fault == "cut":
            tk_lab.heal(healed.dir)
        if fault in ("agent", "session"):
            status = await project.up("node1", "--cpus", "2")
        done = await project.tk("sync", "--confirm-deletes", "--json", code=None)
        assert done.code == 0, soak.told(f"{done}\n{project.session_log()}")
        soak.check(problems(project.dir, project.remote(), outputs, soak.settled_at))
    print(f"{soak.rounds} barriers")
