"""A big file: a small change of it, and a save while it is sent."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

from benchlib.mirrorcase import DELTA_BYTES, DELTA_S, OVERTAKE, Case
from benchlib.mirrortrees import write_token
from benchlib.mirrorways import LSYNCD_0, RSYNC, TkWay, Way, lsyncd_way, missing, rsync_way
from benchlib.rig import wait_until

#: So long a sent batch may still be on the line.
SETTLE_S = 1.0
#: After so long the big file is on its way.
_UNDER_WAY_S = 0.3
_BIG, _SMALL = "data.bin", "small.py"


def deltas(case: Case) -> None:
    """4 bytes of a big file."""
    rig = case.rig("big")
    _random_file(rig.project / _BIG, case.sizes.big_bytes)
    local, remote = case.copy(rig, "big")
    with rig.session():
        rig.tk("sync", "--wait")
        with rsync_way(RSYNC, case.master, local, remote) as by_rsync:
            for rtt_ms in case.distances("a big file"):
                for number in range(2):
                    for way in (TkWay(rig), by_rsync):
                        _delta(case, rtt_ms, way, number)
                        rig.tk("sync", "--wait")


def overtakes(case: Case) -> None:
    """A save while a big file is sent, all of it new."""
    rig = case.rig("overtake")
    _random_file(rig.project / _BIG, case.sizes.big_bytes)
    (rig.project / _SMALL).write_text("#" * 500)
    local, remote = case.copy(rig, "overtake")
    with rig.session():
        rig.tk("sync", "--wait")
        for rtt_ms in case.distances("a save while a big file is sent"):
            for number in range(case.sizes.rounds):
                _overtake(case, rtt_ms, TkWay(rig), number)
            if LSYNCD_0 not in missing():
                with lsyncd_way(LSYNCD_0, case.master, local, remote) as way:
                    for number in range(case.sizes.rounds):
                        _overtake(case, rtt_ms, way, number)


def _overtake(case: Case, rtt_ms: float, way: Way, number: int) -> None:
    big, small = way.local / _BIG, way.local / _SMALL
    fresh = way.local.parent / f"{way.local.name}.new"
    _random_file(fresh, case.sizes.big_bytes, seed=int(rtt_ms) * 100 + number)
    start = fresh.read_bytes()[:64]
    os.replace(fresh, big)
    time.sleep(_UNDER_WAY_S)
    token = f"# beside {rtt_ms:g} {number:06}"
    took_ms = case.eyes.token_ms(way.remote / _SMALL, token, lambda: write_token(small, token))
    case.found.add(rtt_ms, OVERTAKE, way.name, took_ms)
    wait_until(lambda: _begins(way.remote / _BIG, start), "the big file", timeout_s=120.0)
    time.sleep(SETTLE_S)


def _begins(path: Path, start: bytes) -> bool:
    with path.open("rb") as stream:
        return stream.read(len(start)) == start


def _random_file(file: Path, size: int, seed: int = 3) -> None:
    dice = random.Random(seed)
    with file.open("wb") as stream:
        for _ in range(size // 1_000_000):
            stream.write(dice.randbytes(1_000_000))


def _delta(case: Case, rtt_ms: float, way: Way, number: int) -> None:
    file = way.local / _BIG
    token = f"{int(rtt_ms):02}{number:02}"
    before = way.cost().line_bytes

    def edit() -> int:
        start = time.monotonic_ns()
        with file.open("r+b") as stream:
            stream.write(token.encode())
        way.save(_BIG)
        return start

    took_ms = case.eyes.token_ms(way.remote / _BIG, token, edit)
    time.sleep(SETTLE_S)  # what follows on the line belongs to it
    case.found.add(rtt_ms, DELTA_S, way.name, took_ms / 1e3)
    case.found.add(rtt_ms, DELTA_BYTES, way.name, way.cost().line_bytes - before)
