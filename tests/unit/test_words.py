from __future__ import annotations

from tunnelkit.words import human_bytes


def test_bytes_for_people() -> None:
    shown = [human_bytes(size) for size in (0, 999, 1000, 150e6, 1.5e9, 3e15)]
    assert shown == ["0 B", "999 B", "1.0 kB", "150 MB", "1.5 GB", "3000000 GB"]
