"""How what we tell people is written."""

from __future__ import annotations


def human_bytes(size_bytes: float) -> str:
    """Bytes in decimal units, as disks are sold: `1.5 GB`."""
    unit = "B"
    for bigger in ("kB", "MB", "GB"):
        if size_bytes < 1000:
            break
        size_bytes, unit = size_bytes / 1000, bigger
    return (
        f"{size_bytes:.0f} {unit}"
        if unit == "B" or size_bytes >= 100
        else f"{size_bytes:.1f} {unit}"
    )


def shown(text: str, keep: str = "") -> str:
    """`text` with whatever a terminal would obey, but the characters of `keep`, as an escape: what
    comes from the cluster must not move the cursor or paint a line that looks like tk's."""
    if text.isprintable():
        return text
    return "".join(
        c
        if c.isprintable() or c in keep
        else c.encode("unicode_escape", "backslashreplace").decode()
        for c in text
    )
