"""The listing of a pull, by a real sh and find: what can't be read there, and what vanishes."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

from tunnelkit.errors import MirrorError
from tunnelkit.mirror import pull as pull_module
from tunnelkit.mirror.pull import PullReport, Sides, listing, pull
from tunnelkit.mirror.record.manifest import Manifest
from tunnelkit.mirror.transfer.base import FetchRule, Transfer, TransferResult
from tunnelkit.remote_script import RemoteHost

#: Root reads everything, unless it gives up the right to.
_LIKE_OTHERS = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search", "--")
_FIND = shutil.which("find") or "find"


class Far(RemoteHost):
    """A login host that is this machine, with these programs before the others."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs

    def destination(self) -> str:
        return "far"

    def remote_shell(self) -> list[str]:
        like = _LIKE_OTHERS if os.geteuid() == 0 else ()
        path = f"PATH={self._programs}:{os.environ['PATH']}"
        return [*like, "env", path, "sh", "-c", 'eval "$3"', "sh"]

    def find(self, script: str) -> None:
        """Have `find` run this sh script."""
        self._programs.mkdir(exist_ok=True)
        (self._programs / "find").write_text(f"#!/bin/sh\n{script}\n")
        (self._programs / "find").chmod(0o755)


class Bringing(Transfer):
    """Every file that is fetched comes."""

    async def fetch(
        self,
        paths: Collection[str],
        remote_root: str,
        *,
        rule: FetchRule,
        size_bytes: int,
        listen: Callable[[bytes], None] | None = None,
    ) -> TransferResult:
        return TransferResult(0, b"", "", frozenset(paths))


@pytest.fixture
def far(tmp_path: Path) -> Iterator[Far]:
    root = tmp_path / "far"
    for path in ("out1/private/x", "out1/sealed/x", "out1/a", "out2/b", "out2/it's\n/c"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("x\n")
    (root / "out1/private").chmod(0)
    (root / "out1/sealed").chmod(0o600)
    yield Far(tmp_path / "programs")
    for name in ("private", "sealed"):
        (root / "out1" / name).chmod(0o700)


async def pulled(far: Far, tmp_path: Path, *wanted: str) -> PullReport:
    local, root = tmp_path / "local", str(tmp_path / "far")
    local.mkdir(exist_ok=True)
    sides = Sides(far, Bringing(), str(local), root, os.path.realpath(root))
    record = Manifest(tmp_path / "m.sqlite")
    record.open()
    try:
        return await pull(sides, wanted, owned=lambda path: False, record=record)
    finally:
        record.close()


@pytest.mark.parametrize("wanted", [("out1", "out2"), ("out2", "out1"), ("",)])
async def test_what_can_not_be_read_is_named_and_the_rest_comes(
    far: Far, tmp_path: Path, wanted: tuple[str, ...]
) -> None:
    report = await pulled(far, tmp_path, *wanted)
    assert set(report.pulled) == {"out1/a", "out2/b", "out2/it's\n/c"}
    assert report.unread == ("out1/private", "out1/sealed")


async def test_a_root_that_can_not_be_read(far: Far, tmp_path: Path) -> None:
    (tmp_path / "far").chmod(0o300)
    try:
        assert (await pulled(far, tmp_path, "")).unread == (".",)
    finally:
        (tmp_path / "far").chmod(0o700)


async def test_what_vanishes_while_it_is_listed_is_no_failure(far: Far, tmp_path: Path) -> None:
    out = tmp_path / "far/out3"
    for number in range(8):
        (out / f"gone{number}").mkdir(parents=True)
        (out / f"gone{number}.tmp").write_text("x\n")
    (out / "stays").write_text("x\n")
    # The real one, which has read the names, and then meets none of them any more.
    rest = f"\\( -path '*/out3/*' -exec rm -rf {out}/gone0 {out}/gone1"
    rest += "".join(f" {out}/gone{number}" for number in range(2, 8))
    rest += "".join(f" {out}/gone{number}.tmp" for number in range(8))
    far.find(f'top=$1; shift; exec {_FIND} "$top" {rest} \\; -false \\) -o "$@"')
    report = await pulled(far, tmp_path, "out3")
    assert (report.pulled, report.unread) == (("out3/stays",), ())


async def test_another_failure_of_find_names_what_was_asked_for(far: Far, tmp_path: Path) -> None:
    fails = "echo \"find: './out2/b': Input/output error\" >&2; exit 1"
    far.find(f'{_FIND} "$@"; case $1 in ./out2) {fails} ;; esac')
    report = await pulled(far, tmp_path, "out2", "out1")
    assert set(report.pulled) == {"out1/a", "out2/b", "out2/it's\n/c"}
    assert report.unread == ("out1/private", "out1/sealed", "out2")


async def test_a_find_without_printf_is_called_by_its_name(far: Far, tmp_path: Path) -> None:
    far.find('case $* in *-printf*) echo "find: unrecognized: -printf" >&2; exit 1 ;; esac')
    with pytest.raises(MirrorError, match="can't list files") as caught:
        await pulled(far, tmp_path, "out2")
    assert caught.value.cause == "find: unrecognized: -printf"
    assert "findutils" in (caught.value.hint or "")


@pytest.mark.parametrize("name", ["./../x", "/etc", "./out1", "./.", "", "./out2/.tk-replaced"])
async def test_an_unread_path_that_was_not_asked_for_is_not_believed(
    far: Far, tmp_path: Path, name: str
) -> None:
    far.find(f"printf 'unread %s\\0' '{name}'")
    with pytest.raises(MirrorError, match="not believed"):
        await pulled(far, tmp_path, "out2")


async def test_thousands_of_paths_are_listed_in_several_commands(
    far: Far, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each conflict of a `tk sync --theirs .` is one; a word of a command has 128 KiB at most."""
    ran: list[int] = []
    root = str(tmp_path / "far")
    paths = [f"out2/{'x' * 60}-{number:05}" for number in range(1200)]
    for path in paths:
        Path(root, path).write_text("1\n")
    stream_items = pull_module.stream_items

    async def counted(remote: Any, script: str, words: list[str], *args: Any, **named: Any) -> None:
        ran.append(len(shlex.join(words)))
        await stream_items(remote, script, words, *args, **named)

    monkeypatch.setattr(pull_module, "stream_items", counted)
    sides = Sides(far, Bringing(), str(tmp_path), root, os.path.realpath(root))
    assert sorted((await listing(sides, paths)).sizes) == paths
    assert len(ran) > 3 and max(ran) < 128 * 1024 / 5
