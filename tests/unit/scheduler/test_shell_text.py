"""The lines of a shell script: strings whole, no here-documents."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.scheduler.shell_text import shell_lines


@pytest.mark.parametrize(
    "text, lines",
    [
        ("a  # it's\n\nb", [(1, "a  "), (2, ""), (3, "b")]),
        ("a \\\n  b\nc", [(1, "a   b"), (3, "c")]),
        ("a 'x\ny' \"\nz\"\nb", [(1, "a 'x\ny' \"\nz\""), (4, "b")]),
        ("cat <<A <<-\"B\"\n1\nA\n2\n\tB\nc", [(1, 'cat <<A <<-"B"'), (6, "c")]),
        ("cat <<E-1\n'\nE-1 \nE-1\nb", [(1, "cat <<E-1"), (5, "b")]),
        ('a="$(cat <<E\n"\nE\n)" \nb', [(1, 'a="$(cat <<E\n)" '), (5, "b")]),
        ("N=$((1<<k))\nk", [(1, "N=$((1<<k))"), (2, "k")]),
        ("read A <<<b\nb", [(1, "read A <<<b"), (2, "b")]),
        ("echo $# ${#a} x#y \\#z", [(1, "echo $# ${#a} x#y \\#z")]),
        # A string without an end is none; without its last row there is no here-document.
        ("it's\na\\\n b\n<<E\nc\nE\nd", [(1, "it's"), (2, "a b"), (4, "<<E"), (7, "d")]),
        ("cat <<E\na", [(1, "cat <<E"), (2, "a")]),
        ("", []),
    ],
)  # fmt: skip
def test_lines(text: str, lines: list[tuple[int, str]]) -> None:
    assert list(shell_lines(text)) == lines


MARKS = st.sampled_from(
    ["'", '"', "\\", "\n", "<<", "E", "$(", "((", ")", "#", " ", "a", "<<-", "$"]
)


@given(st.lists(MARKS | st.characters(), max_size=40).map("".join))
def test_any_text_is_read_to_its_end(text: str) -> None:
    numbers = [number for number, _ in shell_lines(text)]
    assert numbers == sorted(set(numbers)) and all(
        1 <= one <= text.count("\n") + 1 for one in numbers
    )


@given(st.lists(st.text(max_size=12), min_size=1, max_size=4))
def test_quoted_words_are_one_line(words: list[str]) -> None:
    line = shlex.join(["a", *words])
    assert list(shell_lines(f"{line}\nb")) == [(1, line), (line.count("\n") + 2, "b")]
