from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.cli.terminal.output import _PAINTED, safe
from tunnelkit.text_format import human_bytes, out_of_memory, shown


def test_bytes_for_people() -> None:
    told = [human_bytes(size) for size in (0, 999, 1000, 150e6, 1.5e9, 3e15)]
    assert told == ["0 B", "999 B", "1.0 kB", "150 MB", "1.5 GB", "3000000 GB"]


@given(st.text())
def test_no_text_disturbs_a_terminal(text: str) -> None:
    told = shown(text, keep="\n")
    assert told.replace("\n", "").isprintable()
    assert shown("train.py ünïcode") == "train.py ünïcode"


@given(st.text())
def test_only_colours_of_tk_pass(text: str) -> None:
    painted = safe(f"\x1b[31m{text}\x1b[0m")
    assert _PAINTED.sub("", painted).replace("\n", "").replace("\t", "").isprintable()


@pytest.mark.parametrize("kills", [0, -1, None, "3", True, 2.0, 10**300])
def test_no_kills_no_words(kills: object) -> None:
    assert out_of_memory(kills) == ""


def test_kills_for_memory_in_words() -> None:
    assert out_of_memory(1).endswith("the kernel killed a process of this job or pod")
    assert out_of_memory(3).endswith("the kernel killed 3 processes of this job or pod")
