"""Sizes for people."""

from __future__ import annotations


def size(size_bytes: float) -> str:
    """Return `63.8 GB`; the units are Slurm's, powers of 1024."""
    for unit in ("bytes", "KB", "MB", "GB"):
        if abs(size_bytes) < 1024 or unit == "GB":
            break
        size_bytes /= 1024
    text = f"{size_bytes:.0f}" if unit == "bytes" or size_bytes >= 100 else f"{size_bytes:.1f}"
    return f"{text.removesuffix('.0')} {unit}"
