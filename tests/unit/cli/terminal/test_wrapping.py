"""Long lines on a narrow terminal: broken at words, nothing else changed."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.cli.terminal.wrapping import fit, width_of

ERROR = (
    "tk: node4 can't be reached: the login host closed the connection in that way"
    " \u2014 try again in a while, or see what it says: tk doctor --json"
)


def test_it_breaks_between_words() -> None:
    assert fit(ERROR, 60).split("\n") == [
        "tk: node4 can't be reached: the login host closed the",
        "connection in that way \u2014 try again in a while, or see what",
        "it says: tk doctor --json",
    ]


def test_what_is_to_be_copied_stays_whole() -> None:
    text = "no session is up for this project \u2014 start one with `tk up NODE --gpus 1` in it"
    assert "`tk up NODE --gpus 1`" in fit(text, 60)
    text = "the allocation of this session is over \u2014 get a new one: tk up NODE --gpus 1"
    assert fit(text, 60).split("\n")[-1] == "tk up NODE --gpus 1"


def test_further_lines_begin_where_the_first_did() -> None:
    assert fit("    one two three four five", 20).split("\n") == [
        "    one two three",
        "    four five",
    ]


def test_colours_take_no_room_and_wide_letters_take_two() -> None:
    assert width_of("\x1b[31mtk:\x1b[0m") == 3
    assert width_of("\u6f22\u5b57e\u0301") == 5
    line = "\x1b[31mtk:\x1b[0m " + "word " * 3 + "end"
    assert fit(line, 22) == line


@pytest.mark.parametrize("text", ['{"a": "b c d e f g h i j k l m n"}', '[{"a": "b c d e f g"}]'])
def test_json_is_left_alone(text: str) -> None:
    assert fit(text, 20) == text


@given(st.text(st.sampled_from("ab `:;tk\n\u6f22"), max_size=200), st.integers(0, 80))
def test_no_word_is_lost_and_nothing_is_too_long(text: str, columns: int) -> None:
    found = fit(text, columns)
    assert found.split() == text.split()
    if columns < 20:
        assert found == text
        return
    for line in found.split("\n"):
        # A single word (or what is to be copied) may be longer than the terminal is wide.
        assert width_of(line.rstrip()) <= columns or len(fit(line, columns).split("\n")) == 1


PROGRAM = """
from tunnelkit.cli.terminal.output import note, say, show_error
from tunnelkit.errors import TunnelkitError
show_error(TunnelkitError("one two three four five six seven eight nine ten eleven twelve"
    " thirteen", cause="fourteen fifteen", hint="start one: tk up [NODE]"))
"""


def _on_a_terminal(columns: int) -> str:
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = {**os.environ, "NO_COLOR": "1", "TERM": "xterm"}
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stderr=side, env=env) as process:
        os.close(side)
        said = b""
        while True:
            try:
                data = os.read(main, 4096)
            except OSError:
                break
            if not data:
                break
            said += data
        process.wait()
    os.close(main)
    return said.decode().replace("\r\n", "\n")


def test_an_error_on_a_terminal_of_60_columns() -> None:
    lines = _on_a_terminal(60).splitlines()
    assert len(lines) == 2
    assert all(len(line) <= 60 for line in lines)
    assert lines[-1].endswith("tk up [NODE]")


def test_in_a_pipe_it_is_one_line() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.stderr.count("\n") == 1
