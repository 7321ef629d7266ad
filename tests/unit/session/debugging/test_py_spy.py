"""py-spy's binary: which file is accepted as one, and how a node keeps it."""

from __future__ import annotations

import os
import stat
import subprocess
from importlib import metadata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.errors import MissingProgram
from tunnelkit.session.debugging import py_spy
from tunnelkit.session.debugging.py_spy import NodeFacts, PySpyBinary, load_binary, read_facts

ELF = b"\x7fELF\x02\x01" + bytes(12) + (62).to_bytes(2, "little") + b"rest"


def binary(tmp_path: Path) -> PySpyBinary:
    path = tmp_path / "py-spy"
    path.write_bytes(ELF)
    return load_binary(path)


def run(argv: list[str], stdin: bytes = b"") -> NodeFacts:
    done = subprocess.run(argv, input=stdin, capture_output=True, check=False, timeout=60)
    assert done.stderr == b""
    return read_facts(done.stdout)


def test_a_node_keeps_it_once_and_uses_no_other(tmp_path: Path) -> None:
    spy, base = binary(tmp_path), tmp_path / "with blank"
    base.mkdir()
    facts = run(spy.probe(str(base)))
    assert facts.file == "need" and facts.machine == os.uname().machine
    # What arrives cut short is not kept.
    assert run(spy.store(str(base)), spy.packed()[:-9]).file == "need"
    assert list((base / "native").iterdir()) == []
    assert run(spy.store(str(base)), spy.packed()).file == "have"
    [kept] = (base / "native").iterdir()
    assert kept.name == spy.file_name and kept.read_bytes() == ELF
    assert stat.S_IMODE(kept.stat().st_mode) == 0o700
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    assert run(spy.probe(str(base))).file == "have"
    kept.write_bytes(ELF + b"changed")
    assert run(spy.probe(str(base))).file == "need"
    # A link to the right bytes is another's to change.
    (tmp_path / "elsewhere").write_bytes(ELF)
    kept.unlink()
    kept.symlink_to(tmp_path / "elsewhere")
    assert run(spy.probe(str(base))).file == "need"


def test_a_directory_that_is_a_link_is_not_used(tmp_path: Path) -> None:
    spy, base = binary(tmp_path), tmp_path / "base"
    base.mkdir()
    (tmp_path / "theirs").mkdir()
    (base / "native").symlink_to(tmp_path / "theirs")
    assert run(spy.probe(str(base))).file == "foreign"
    assert run(spy.store(str(base)), spy.packed()).file == "foreign"
    assert list((tmp_path / "theirs").iterdir()) == []


def test_binaries_that_nobody_used_for_long_go(tmp_path: Path) -> None:
    spy = binary(tmp_path)
    native = tmp_path / "native"
    native.mkdir(mode=0o700)
    for name, days in (("py-spy-old", 61), ("py-spy-young", 2), ("other", 99)):
        (native / name).touch()
        before = (native / name).stat().st_mtime - days * 86_400
        os.utime(native / name, (before, before))
    run(spy.store(str(tmp_path)), spy.packed())
    names = {one.name for one in native.iterdir()}
    assert names == {spy.file_name, "py-spy-young", "other"}


@pytest.mark.parametrize("data", [b"", b"#!/bin/sh\n", b"\xcf\xfa\xed\xfe" + bytes(50), ELF[:18]])
def test_what_does_not_run_on_linux_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "py-spy"
    path.write_bytes(data)
    with pytest.raises(MissingProgram, match="no program for Linux"):
        load_binary(path)


def test_the_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> metadata.Distribution:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.delenv(py_spy.VARIABLE, raising=False)
    monkeypatch.setattr(metadata, "distribution", missing)
    with pytest.raises(MissingProgram) as caught:
        py_spy.find_binary()
    assert caught.value.hint == "pip install 'tunnelkit[native]'"


def test_facts_of_a_node_are_read() -> None:
    output = b"machine aarch64\nyama 1\ncap 000001fffeffffff\nfile have\n"
    assert read_facts(output) == NodeFacts("aarch64", "have", 1, may_trace=True)
    assert read_facts(b"yama 2\ncap 0000000000000000\n") == NodeFacts(yama=2)


@given(
    st.lists(
        st.tuples(st.sampled_from([b"machine", b"yama", b"cap", b"file", b"x"]), st.binary()),
        max_size=6,
    )
)
def test_facts_are_short_words_whatever_is_sent(lines: list[tuple[bytes, bytes]]) -> None:
    facts = read_facts(b"\n".join(b"%s %s" % line for line in lines))
    assert 0 <= facts.yama <= 3
    for word in (facts.machine, facts.file):
        assert len(word) <= 32 and word.replace("_", "").isalnum() == bool(word)
