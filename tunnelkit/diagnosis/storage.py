"""Full file systems and quotas in words, with figures: `you have used 50.0 of 50.0 GB of /home`."""

from __future__ import annotations

from collections.abc import Sequence

from tunnelkit.diagnosis.evidence.storage import Amount, QuotaView, RoomView
from tunnelkit.diagnosis.sizes import size
from tunnelkit.diagnosis.verdict import Evidence

_SOURCE = "quota on the login host, now"
_UNITS = (("TB", 1 << 40), ("GB", 1 << 30), ("MB", 1 << 20))


def full_quota(quotas: Sequence[QuotaView], room: RoomView | None) -> QuotaView | None:
    """Return the quota that is used up, of the file system if one is known."""
    return next((one for one in quotas_of(quotas, room) if one.full), None)


def quotas_of(quotas: Sequence[QuotaView], room: RoomView | None) -> list[QuotaView]:
    """Return the quotas of a file system; all if it is not known."""
    if room is None:
        return list(quotas)
    names = {room.mounted_on.rstrip("/"), room.device.rstrip("/"), room.path.rstrip("/")}
    return [
        one
        for one in quotas
        # Lustre prints the path that was asked for.
        if (place := one.filesystem.rstrip("/")) in names
        or (place.startswith("/") and f"{room.path}/".startswith(f"{place}/") and len(place) > 1)
    ]


def quota_lines(quotas: Sequence[QuotaView], room: RoomView | None) -> list[Evidence]:
    """Return each quota's figures as evidence: also of one that has room again by now."""
    found = []
    for one in quotas_of(quotas, room)[:4]:
        figures = [text for text in (_bytes_of(one.blocks), _files_of(one.files)) if text]
        place = room.mounted_on if room is not None else one.filesystem
        name = f" of {one.owner}" if one.owner and one.kind != "user" else ""
        text = f"{place}: {', '.join(figures)} used ({one.kind} quota{name})"
        found.append(Evidence(text, _SOURCE, "now"))
    return found


def used_of(quota: QuotaView, room: RoomView | None) -> str:
    """Return `you have used 50.0 of 50.0 GB of /home (user quota)`."""
    place = room.mounted_on if room is not None else quota.filesystem
    blocks, files = quota.blocks, quota.files
    of_bytes = blocks is not None and (blocks.full or files is None)
    figures = _bytes_of(blocks) if of_bytes else _files_of(files)
    who = "you have" if quota.kind == "user" else f"{quota.kind} {quota.owner} has"
    return f"{who} used {figures} of {place} ({quota.kind} quota)"


def seen_room(room: RoomView) -> Evidence:
    """Return what df says of a file system."""
    inodes = f", inodes {room.inodes_used:.0%}" if room.inodes_used is not None else ""
    text = (
        f"{room.mounted_on}: {size(room.free_bytes)} free of {size(room.size_bytes)}"
        f" ({room.used:.0%} used{inodes})"
    )
    return Evidence(text, "df on the login host, now", "now")


def _bytes_of(amount: Amount | None) -> str:
    if amount is None:
        return ""
    name, unit = next((one for one in _UNITS if amount.limit >= one[1]), ("KB", 1 << 10))
    return f"{amount.used / unit:.1f} of {amount.limit / unit:.1f} {name}"


def _files_of(amount: Amount | None) -> str:
    return "" if amount is None else f"{amount.used:,} of {amount.limit:,} files"
