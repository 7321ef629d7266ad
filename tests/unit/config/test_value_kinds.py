"""Times, TOML strings, and the lines of keys."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.config import toml_source
from tunnelkit.config.schema import KEYS
from tunnelkit.config.value_kinds import BadValue, format_time, parse_time_s, single_line


@pytest.mark.parametrize(
    ("raw", "seconds"),
    [
        (90, 5400),
        ("90", 5400),
        ("90m", 5400),
        ("2h", 7200),
        ("1h30m", 5400),
        ("1d12h", 129600),
        ("45s", 45),
        ("10:30", 630),
        ("2:00:00", 7200),
        ("100:00:00", 360000),
        ("1-0", 86400),
        ("1-02:30", 95400),
        ("1-00:00:00", 86400),
    ],
)
def test_time(raw: object, seconds: int) -> None:
    assert parse_time_s(raw) == seconds


@pytest.mark.parametrize(
    "raw",
    [
        *(0, "0", "", " ", "-5", -5, 1.5, True, None, "2:60:00", "1:2:3:4", "1-24", "1-", ":5"),
        *("5:", "m", "1m2h", "UNLIMITED", "2:00:00\n#SBATCH -x", "9" * 5000, "2 h"),
    ],
)
def test_not_a_time(raw: object) -> None:
    with pytest.raises(BadValue):
        parse_time_s(raw)


@given(st.integers(1, 10**8))
def test_time_round_trip(seconds: int) -> None:
    assert parse_time_s(format_time(seconds)) == seconds


@given(st.text())
def test_quoted_text_reads_back(text: str) -> None:
    assert tomllib.loads(f"v = {toml_source.quote(text)}") == {"v": text}


@given(st.text())
def test_single_line_text_has_one_line(text: str) -> None:
    try:
        assert len(single_line(text).split("\n")) == 1
    except BadValue:
        assert not text.strip() or any(not char.isprintable() for char in text)


LINES = st.lists(
    st.one_of(
        st.just("# a = [ '"),
        st.just(""),
        st.just("multi = '''\n[x]\nk = 1\n'''"),
        st.just('multi = """\n[x]\nq = "" \\"""\n""""'),
        st.just("list = [\n  1, # ]\n  [2, 3],\n]"),
        st.just("table = { b = 1, c = [2] }"),
        st.just("dotted.key = 1"),
    ),
    max_size=5,
)


@given(LINES, LINES)
def test_lines_of_keys(before: list[str], between: list[str]) -> None:
    def unique(lines: list[str], prefix: str) -> str:
        made = []
        for number, line in enumerate(lines):
            is_key = line and not line.startswith("#")
            made.append(f"{prefix}{number}{line}" if is_key else line)
        return "".join(line + "\n" for line in made)

    text = unique(before, "a") + "[ mirror ] # ]\n" + unique(between, "b") + "  remote = '=x'"
    document = toml_source.parse(Path("x"), text.encode())
    lines = text.split("\n")
    assert document.lines["mirror.remote"] == len(lines)
    assert document.lines["mirror"] == lines.index("[ mirror ] # ]") + 1


def test_variables_and_flags_are_told_apart() -> None:
    assert len({key.variable for key in KEYS.values()}) == len(KEYS)
    assert len({key.flag for key in KEYS.values()}) == len(KEYS)
    assert KEYS["debug.just_my_code"].variable == "TK_DEBUG_JUST_MY_CODE"
    assert KEYS["debug.just_my_code"].flag == "--just-my-code"
