"""The mirror beside rsync, lsyncd and unison, at several distances in one run.

Everything crosses the lab's proxy to login, whatever its round-trip time; the others share one
ssh master. Each case has a tree of its own and a session of its own.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

from benchlib.disk import flush
from benchlib.measure import timed
from benchlib.mirrorbig import SETTLE_S, deltas, overtakes
from benchlib.mirrorcase import (
    BARRIER,
    CHECKOUT,
    COMMAND,
    COPY,
    EDIT_BYTES,
    EDIT_CPU,
    EDIT_RSS,
    FIRST,
    MIXED,
    VISIBLE,
    Case,
    Found,
    Sizes,
)
from benchlib.mirrorcost import Cost, rss_bytes, tree_cpu_s
from benchlib.mirrortrees import (
    eyes,
    git,
    make_branches,
    make_tree,
    same_trees,
    write_token,
)
from benchlib.mirrorways import (
    FILES_FROM,
    LSYNCD_0,
    LSYNCD_1,
    RSYNC,
    TK,
    UNISON,
    Mux,
    TkWay,
    Way,
    lsyncd_way,
    missing,
    mux,
    rsync_way,
    unison_way,
)
from benchlib.rig import NODE, Rig, background, wait_until
from benchlib.rig import TK as TK_PROGRAM
from tunnelkit import lab
from tunnelkit.lab.layout import CPUS
from tunnelkit.lab.slurm import GPUS
from tunnelkit.session.runtime.blocking_client import ask
from tunnelkit.session.runtime.control_calls import Sync
from tunnelkit.session.runtime.paths import SessionPaths, session_paths


def run(first: Rig, rtts_ms: list[float], sizes: Sizes, cases: list[str]) -> Found:
    """These of CASES at these distances."""
    with mux(first) as master, eyes(first.project.parent) as looker:
        case = Case(first, master, looker, rtts_ms, sizes)
        case.found.notes += [f"{way}: {why}" for way, why in missing().items()]
        for name in cases:
            try:
                CASES[name](case)
            except RuntimeError as error:  # what was measured before is worth telling
                case.found.notes.append(f"{name}: {error}")
            except (KeyboardInterrupt, SystemExit):
                case.found.notes.append(f"{name} and what comes after it: interrupted")
                break
                lab.set_rtt(0, case.info.dir)
    return case.found


# -- one edit -----------------------------------------------------------------------------------


def _edits(case: Case) -> None:
    rig = case.rig("edits")
    names = make_tree(rig.project, case.sizes.tree)
    ways = [
        name for name in (FILES_FROM, RSYNC, LSYNCD_0, LSYNCD_1, UNISON) if name not in missing()
    ]
    places = {name: case.copy(rig, f"edits{number}") for number, name in enumerate(ways)}
    alone = [name for name in ways if name != FILES_FROM]
    with rig.session():
        rig.tk("sync", "--wait")
        for rtt_ms in case.distances("edits"):
            # In turns, since what the machine is good for differs from one minute to the next.
            with _opened(case.master, FILES_FROM, *places[FILES_FROM]) as by_rsync:
                _edit_series(case, rtt_ms, [TkWay(rig), by_rsync], names, case.sizes.edits)
            for name in alone:
                with _opened(case.master, name, *places[name]) as way:
                    _edit_series(case, rtt_ms, [way], names, case.sizes.slow_edits)


def _opened(master: Mux, name: str, local: Path, remote: Path) -> AbstractContextManager[Way]:
    if name in (FILES_FROM, RSYNC):
        return rsync_way(name, master, local, remote)
    if name == UNISON:
        return unison_way(name, master, local, remote)
    return lsyncd_way(name, master, local, remote)


def _edit_series(case: Case, rtt_ms: float, ways: list[Way], names: list[str], count: int) -> None:
    """`count` edits by each of the ways, in turns."""
    dice = random.Random(7)
    spent = [Cost() for _ in ways]
    for number in range(-1, count):  # the first is not counted: files and ways are warm
        for index, way in enumerate(ways):
            before = way.cost()
            value = _edit_ms(case, way, dice.choice(names), f"# edit {rtt_ms:g} {number:06}")
            time.sleep(dice.uniform(0.1, 0.4))
            if number >= 0:
                case.found.add(rtt_ms, VISIBLE, way.name, value)
                spent[index] += way.cost() - before
    for way, cost in zip(ways, spent, strict=True):
        add = partial(case.found.add, rtt_ms, way=way.name)
        add(EDIT_CPU, value=cost.cpu_s / count * 1e3)
        add(EDIT_BYTES, value=cost.line_bytes / count)
        add(EDIT_RSS, value=way.cost().rss_bytes / 1e6)


def _edit_ms(case: Case, way: Way, name: str, token: str) -> float:
    def edit() -> int:
        start = write_token(way.local / name, token)
        way.save(name)
        return start

    return case.eyes.token_ms(way.remote / name, token, edit)


# -- nothing to do ------------------------------------------------------------------------------


def _barriers(case: Case) -> None:
    rig = case.rig("barrier")
    make_tree(rig.project, case.sizes.barrier, mean_bytes=500)
    local, remote = case.copy(rig, "barrier")
    paths = _paths(rig)
    with rig.session():
        rig.tk("sync", "--wait")
        case.master.rsync(local, remote)
        time.sleep(SETTLE_S)
        for rtt_ms in case.distances("barriers"):
            for _ in range(case.sizes.rounds):
                for way, work in (
                    (TK, lambda: ask(paths, Sync(timeout_s=60.0))),
                    (COMMAND, lambda: rig.tk("sync", "--wait")),
                    (RSYNC, lambda: case.master.rsync(local, remote)),
                ):
                    case.found.add(rtt_ms, BARRIER, way, timed(work) * 1e3)


def _paths(rig: Rig) -> SessionPaths:
    """Where the session's control socket is: it is a part of the environment that says so."""
    kept = dict(os.environ)
    os.environ.update(rig.environ)
    try:
        return session_paths(rig.project)
    finally:
        os.environ.clear()
        os.environ.update(kept)


# -- the first copy -----------------------------------------------------------------------------


def _first_copies(case: Case) -> None:
    """While the job is queued, as it mostly is: else its start takes the time of these CPUs."""
    with case.rig("other").session(GPUS, CPUS):
        _first_rounds(case)


def _first_rounds(case: Case) -> None:
    for rtt_ms in case.distances("first copies"):
        for number in range(case.sizes.first_rounds):
            rig = case.rig(f"first{rtt_ms:g}-{number}")
            make_tree(rig.project, case.sizes.tree)
            remote = case.info.home / f"other-first{rtt_ms:g}-{number}"

            measured = {
                TK: partial(_up_s, rig),
                RSYNC: partial(_rsync_s, case.master, rig.project, remote),
            }
            for way in (TK, RSYNC) if number % 2 else (RSYNC, TK):
                case.found.add(rtt_ms, FIRST, way, measured[way]())
            shutil.rmtree(rig.project)
            shutil.rmtree(remote)
            shutil.rmtree(rig.remote_project)


def _copies(case: Case) -> None:
    """The way is open for both, and neither has seen anything of the tree."""
    for rtt_ms in case.distances("copies"):
        rig = case.rig(f"copy{rtt_ms:g}")
        rig.project.joinpath("one.py").write_text("one\n")
        with rig.session():
            rig.tk("sync", "--wait")
            for number in range(case.sizes.copy_rounds):
                _copy_round(case, rtt_ms, rig, number)


def _copy_round(case: Case, rtt_ms: float, rig: Rig, number: int) -> None:
    name = f"copy{rtt_ms:g}-{number}"
    tree, place = case.base / name, rig.project / name
    by_rsync, by_tk = case.info.home / f"other-{name}", rig.remote_project / name
    names = make_tree(tree, case.sizes.tree)

    def tk_s() -> float:
        flush()
        took_s = timed(partial(_appears, tree, place, by_tk))
        rig.tk("sync", "--wait")
        if not same_trees(place, by_tk, names):
            raise RuntimeError("tk: not the same after the copy")
        return took_s

    if number % 2:
        case.found.add(rtt_ms, COPY, TK, tk_s())
        case.found.add(rtt_ms, COPY, RSYNC, _rsync_s(case.master, place, by_rsync))
    else:
        case.found.add(rtt_ms, COPY, RSYNC, _rsync_s(case.master, tree, by_rsync))
        case.found.add(rtt_ms, COPY, TK, tk_s())


def _appears(tree: Path, place: Path, remote: Path) -> None:
    """Move the tree into the project. What is new appears there by one rename, whole."""
    tree.rename(place)
    wait_until(remote.exists, f"{remote.name} on the node")


def _rsync_s(master: Mux, local: Path, remote: Path) -> float:
    flush()
    remote.mkdir()
    return timed(lambda: master.rsync(local, remote))


def _up_s(rig: Rig) -> float:
    """`tk up`, from the moment the link is there to the line that says what is mirrored."""
    flush()
    start = took_s = 0.0
    lines = []
    argv = [TK_PROGRAM, "up", NODE, "--gpus", "1", "--cpus", "2"]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with background(argv, cwd=rig.project, env=rig.environ, **options) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.decode())
            if b"looking at" in line:
                start = time.monotonic()
            elif b"mirror:" in line and b" files" in line:
                took_s = time.monotonic() - start
                break
    rig.down()
    if not start or not took_s:
        raise RuntimeError(f"tk up: {''.join(lines)}")
    return took_s


# -- a git checkout -----------------------------------------------------------------------------


def _checkouts(case: Case) -> None:
    rig = case.rig("checkout")
    names = make_branches(rig.project, case.sizes.checkout)
    ways = [name for name in (RSYNC, LSYNCD_0) if name not in missing()]
    places = {name: case.copy(rig, f"checkout{number}") for number, name in enumerate(ways)}
    with rig.session(), _batches(rig) as batches:
        rig.tk("sync", "--wait")
        for rtt_ms in case.distances("checkouts"):
            for _ in range(case.sizes.first_rounds):
                seen = len(batches.read())
                _checkout(case, rtt_ms, TkWay(rig), names)
                rig.tk("sync", "--wait")
                case.found.generations.setdefault(rtt_ms, []).append(len(batches.read()) - seen)
            for name in ways:
                with _opened(case.master, name, *places[name]) as way:
                    for _ in range(case.sizes.first_rounds):
                        _checkout(case, rtt_ms, way, names)
                        time.sleep(SETTLE_S)


def _checkout(case: Case, rtt_ms: float, way: Way, names: list[str]) -> None:
    """To the other branch. The clock starts when git has written all."""
    other = "one" if "two" in (way.local / ".git/HEAD").read_text() else "two"

    def edit() -> int:
        git(way.local, "checkout", "-q", other)
        start = time.monotonic_ns()
        way.save("")
        return start

    took_s, mixed_s = case.eyes.changed_s(way.remote, names, edit)
    case.found.add(rtt_ms, CHECKOUT, way.name, took_s)
    case.found.add(rtt_ms, MIXED, way.name, mixed_s)
    if not same_trees(way.local, way.remote, names):
        raise RuntimeError(f"{way.name}: not the same after the checkout")


class Batches:
    """What `tk sync --watch --json` has written."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def read(self) -> list[dict[str, object]]:
        """The batches so far."""
        lines = self._file.read_text().splitlines()
        return [event for line in lines if (event := json.loads(line))["event"] == "batch"]


@contextmanager
def _batches(rig: Rig) -> Iterator[Batches]:
    file = rig.project.parent / "batches.jsonl"
    with file.open("wb") as stream:
        argv = [TK_PROGRAM, "sync", "--watch", "--json"]
        options = {"stdout": stream, "stderr": subprocess.DEVNULL}
        environ = {**rig.environ, "PYTHONUNBUFFERED": "1"}
        with background(argv, cwd=rig.project, env=environ, **options):
            wait_until(lambda: file.stat().st_size > 0, "tk sync --watch")
            yield Batches(file)


# -- nothing happens ----------------------------------------------------------------------------


def _idle(case: Case) -> None:
    rig = case.rig("idle")
    make_tree(rig.project, case.sizes.watched, mean_bytes=50)
    with rig.session():
        rig.tk("sync", "--wait", "--timeout", "300", timeout_s=310.0)
        time.sleep(min(5.0, case.sizes.idle_s))
        way = TkWay(rig)
        case.found.idle[TK] = _idle_of(case, way.pid)
    for name, open_way in ((LSYNCD_0, lsyncd_way), (UNISON, unison_way)):
        if name not in missing():
            place = case.copy(rig, "idle-" + name.split(",")[0])
            with open_way(name, case.master, *place) as other:
                case.found.idle[name] = _idle_of(case, other.pid)


def _idle_of(case: Case, pid: int) -> tuple[float, float]:
    before = tree_cpu_s(pid)
    time.sleep(case.sizes.idle_s)
    return (tree_cpu_s(pid) - before) / case.sizes.idle_s, rss_bytes(pid) / 1e6


# Checkouts come before the cases that end by removing whole trees: ext4 without a journal does not
# give out an inode again for minutes, and searches past all of them at each new file.
CASES: dict[str, Callable[[Case], None]] = {
    "checkout": _checkouts,
    "edits": _edits,
    "barrier": _barriers,
    "first-copy": _first_copies,
    "copy": _copies,
    "big-file": deltas,
    "overtake": overtakes,
    "idle": _idle,
}
