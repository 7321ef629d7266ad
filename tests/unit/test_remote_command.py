"""Words arrive exactly, whatever the login shell: asked of every shell that is installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tunnelkit.errors import UsageError
from tunnelkit.remote_command import remote_command

#: Those that are installed; sh always is.
SHELLS = [
    name
    for name in ("sh", "dash", "bash", "zsh", "ksh", "mksh", "tcsh", "csh", "fish")
    if shutil.which(name)
]
UGLY = [
    "",
    " ",
    "a b",
    "it's",
    'say "hi"',
    "!history!!",
    "$HOME `id` $(id)",
    "two\nlines\n",
    "back\\slash \\n \\'",
    "*?[a]{b,c}~",
    "~",
    "=ls",
    "-n",
    "%s %% %b \\0101",
    "höhe ✓",
    "tab\there\r",
    ";|&<>(){}#",
    "\x01\x7f",
]
_PRINT_ARGS = "import json,os,sys;print(json.dumps([list(os.fsencode(a)) for a in sys.argv[1:]]))"


def through(shell: str, words: list[str]) -> list[bytes]:
    text = remote_command([sys.executable, "-I", "-c", _PRINT_ARGS, *words])
    done = subprocess.run([shell, "-c", text], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return [bytes(word) for word in json.loads(done.stdout)]


@pytest.mark.parametrize("shell", SHELLS)
def test_ugly_words_arrive(shell: str) -> None:
    assert through(shell, UGLY) == [os.fsencode(word) for word in UGLY]


@pytest.mark.parametrize("shell", SHELLS)
@settings(max_examples=15, deadline=None)
@given(words=st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))))
def test_any_words_arrive(shell: str, words: list[str]) -> None:
    assert through(shell, words) == [os.fsencode(word) for word in words]


@given(words=st.lists(st.text(st.characters(exclude_characters="\0")), min_size=1))
def test_only_harmless_characters_reach_the_login_shell(words: list[str]) -> None:
    try:
        text = remote_command(words)
    except UsageError:
        return  # a lone surrogate, which stands for no byte
    assert text.isascii() and text.isprintable()
    assert "!" not in text and "\\'" not in text
    assert text.count("'") == 2


def test_refuses_what_no_argv_can_carry() -> None:
    with pytest.raises(UsageError):
        remote_command(["a\0b"])
    with pytest.raises(UsageError):
        remote_command([])
