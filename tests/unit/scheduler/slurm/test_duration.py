"""Slurm's durations, read and written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.scheduler.slurm.duration import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1-02:03:04", 93784),
        ("1:59:57", 7197),
        ("59:57", 3597),
        ("0:07", 7),
        ("30", 1800),
        ("2-03", 183600),
        ("2-03:30", 185400),
        ("UNLIMITED", None),
        ("INVALID", None),
        ("NOT_SET", None),
        ("N/A", None),
        ("", None),
        ("-5", None),
        ("1:2:3:4", None),
    ],
)
def test_read(text: str, seconds: int | None) -> None:
    assert parse_duration(text) == seconds


@given(st.integers(0, 10**8))
def test_written_is_read_back(seconds: int) -> None:
    assert parse_duration(format_duration(seconds)) == seconds
