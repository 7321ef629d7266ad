"""`[cluster] directory`: what may be given, and which directory a host's shell makes of it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.cluster_dir import TK_DIR, TK_OWN_DIR
from tunnelkit.config.value_kinds import CLUSTER_DIR, BadValue


@pytest.mark.parametrize(
    "written, kept",
    [
        ("~/.cache/tunnelkit", "~/.cache/tunnelkit"),
        ("/scratch/me/tk/", "/scratch/me/tk"),
        ("$SCRATCH/.tk", "$SCRATCH/.tk"),
        ("$W_2//a b/./c", "$W_2/a b/c"),
    ],
)
def test_what_may_be_given(written: str, kept: str) -> None:
    assert CLUSTER_DIR.parse(written) == kept


@pytest.mark.parametrize(
    "written",
    [
        *("", "/", "~", "~/", "$SCRATCH", "tk", "./tk", "~you/tk", "../tk", "/scratch/../etc"),
        *("$(id)/tk", "${SCRATCH}/tk", "$1/tk", "$A;id/tk", "$A-b/tk", "$SCRATCH/../x", "/a\nb"),
    ],
)
def test_what_may_not(written: str) -> None:
    with pytest.raises(BadValue):
        CLUSTER_DIR.parse(written)


def found(word: str, **environ: str) -> subprocess.CompletedProcess[str]:
    code = TK_DIR + 'tk_dir "$1" && printf "%s" "$d"'
    return subprocess.run(
        ["sh", "-c", code, "sh", word], env=environ, capture_output=True, text=True, check=False
    )


def test_what_the_shell_makes_of_it() -> None:
    assert found("~/.tk", HOME="/home/a b").stdout == "/home/a b/.tk"
    assert found("$S/.tk", S="/s$(id)/*").stdout == "/s$(id)/*/.tk"
    assert found("/a b/$(id)").stdout == "/a b/$(id)"
    assert "S is not set there" in found("$S/tk").stderr
    assert "no absolute path" in found("$S/tk", S="s").stderr


@given(st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=30))
def test_no_word_that_is_let_through_runs_anything(text: str) -> None:
    for written in (text, f"${text}", f"/{text}", f"$HOME/{text}"):
        try:
            word = CLUSTER_DIR.parse(written)
        except BadValue:
            continue
        below = word.partition("/")[2]
        done = found(word, HOME="/h", **({"A": "/v"} if word.startswith("$A/") else {}))
        if done.returncode == 0:
            assert done.stdout in (f"/{below}", f"/h/{below}", f"/v/{below}")
        else:
            assert "is not set there" in done.stderr


def test_a_directory_of_ones_own_is_made_private(tmp_path: Path) -> None:
    place = tmp_path / "a b" / "tk"
    code = f'umask 077; {TK_OWN_DIR} tk_own_dir "$1"'
    for _ in range(2):
        subprocess.run(["sh", "-c", code, "sh", str(place)], check=True)
        assert place.stat().st_mode & 0o777 == 0o700
    place.chmod(0o702)
    done = subprocess.run(
        ["sh", "-c", code, "sh", str(place)], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0 and "others may write to" in done.stderr
