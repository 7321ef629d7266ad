"""Jobs that run, and can't write any more: their file system or quota is full."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tunnelkit.diagnosis.evidence.storage import QuotaView, RoomView
from tunnelkit.diagnosis.running.look import Look
from tunnelkit.diagnosis.sizes import size
from tunnelkit.diagnosis.storage import quota_lines, quotas_of, seen_room, used_of
from tunnelkit.diagnosis.verdict import Certainty, Evidence, NextStep, Verdict

#: A quota is used up though so little is left: a file system gives room in blocks.
_BLOCK_BYTES = 64 << 10
#: So little of a quota is soon used up. A share of it would be 80 GB of 10 TB.
_FEW_BYTES, _FEW_FILES = 4 << 20, 10
_DU = NextStep("what takes the room", "tk run sh -c 'du -xh -d1 . | sort -h | tail'")
_TO_DO = (_DU, NextStep("delete or move it, or write elsewhere: what is written there fails"))


def storage_full(look: Look) -> Verdict | None:
    """A file system that the job writes to is full, or its user's quota there."""
    return next(_full_disks(look), None) or next(iter(_full_quotas(look)), None)


def _full_disks(look: Look) -> Iterator[Verdict]:
    for window in look.windows:
        for place in window.places:
            if place.written and place.answers and place.full:
                used = (
                    f"0 bytes free of {size(place.size_bytes)}"
                    if not place.free_bytes
                    else f"0 inodes free of {place.files:,}"
                )
                text = f"{place.path} ({place.kind}): {used}"
                yield _verdict(
                    f"{place.path} is full{look.where(window)}", Evidence(text, "statvfs")
                )
    for room in look.storage.rooms:
        if room.size_bytes and not room.free_bytes:
            yield _verdict(f"{room.mounted_on}, where its log goes, is full", seen_room(room))
        elif room.inodes_free == 0:
            yield _verdict(f"{room.mounted_on}, where its log goes, has no inodes", seen_room(room))


def _full_quotas(look: Look) -> list[Verdict]:
    """Return the quotas that are used up, then those that are nearly: writes still succeed."""
    rooms = [*look.storage.rooms, *_written(look)]
    found = [
        verdict
        for room in rooms
        for quota in quotas_of(look.storage.quotas, room)
        for verdict in _full_limits(quota, room)
    ]
    return sorted(found, key=lambda one: one.certainty is not Certainty.PROVEN)


def _full_limits(quota: QuotaView, room: RoomView) -> Iterator[Verdict]:
    for amount, alone, few, least in (
        (quota.blocks, replace(quota, files=None), _FEW_BYTES, _BLOCK_BYTES),
        (quota.files, replace(quota, blocks=None), _FEW_FILES, 1),
    ):
        if amount is not None and amount.left < few:
            verdict = _verdict(used_of(alone, room), *quota_lines((quota,), room))
            sure = amount.left < least
            yield verdict if sure else replace(verdict, certainty=Certainty.LIKELY)


def _written(look: Look) -> Iterator[RoomView]:
    """Return the file systems of the nodes as rooms, so that quotas are found by their names."""
    for window in look.windows:
        for one in window.places:
            if one.written:
                sizes = one.size_bytes, one.free_bytes, 0.0, None
                yield RoomView(one.path, one.path, *sizes, one.source)


def _verdict(what: str, *because: Evidence) -> Verdict:
    return Verdict(
        "storage-full",
        f"runs, and can't write any more: {what}",
        Certainty.PROVEN,
        because,
        next_steps=_TO_DO,
    )
