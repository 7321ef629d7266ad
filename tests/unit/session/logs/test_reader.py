"""A log is read whole, by a real sh, whatever happens to the link or the file."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.session.logs.local_cluster import LocalLink, put_program
from tunnelkit.errors import ConnectionFailed, TunnelkitError
from tunnelkit.session.logs import reader as reader_module
from tunnelkit.session.logs.reader import LogPart, LogReader

SHELLS = [shell for shell in ("dash", "bash", "busybox") if shutil.which(shell) is not None]


def _noise(size: int, seed: int) -> bytes:
    """Bytes that no framing could mistake for its own, with all that may break one."""
    rng = random.Random(seed)
    parts = [rng.randbytes(rng.randrange(4000)) for _ in range(1 + size // 1000)]
    data = b"\n".join([b"tk-0 over", b"\0\x1b[31m\r\n", *parts])[:size]
    assert len(data) == size
    return data


async def _read(
    link: LocalLink, path: Path, *, lines: int | None = None, last_bytes: int | None = None
) -> tuple[bytes, list[str]]:
    reader = LogReader(link.cluster(), LogPart(str(path), "7", lines, last_bytes))
    data, said = b"", []
    async for event in reader.events():
        if isinstance(event, bytes):
            data += event
        else:
            said.append(event)
    return data, said


class Following:
    """A reading that follows, in a task."""

    def __init__(self, link: LocalLink, path: Path, name: str = "") -> None:
        self.ended = asyncio.Event()
        self.data = b""
        self.said: list[str] = []
        self._more = asyncio.Event()
        self._reader = LogReader(link.cluster(), LogPart(str(path), "7", name=name), self.ended)
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async for event in self._reader.events():
            if isinstance(event, bytes):
                self.data += event
            else:
                self.said.append(event)
            self._more.set()

    async def until_data(self, size: int) -> None:
        await self._until(lambda: len(self.data) >= size)

    async def until_said(self, text: str) -> None:
        await self._until(lambda: any(text in one for one in self.said))

    async def _until(self, condition: object) -> None:
        assert callable(condition)
        async with asyncio.timeout(30):
            while not condition():
                self._more.clear()
                more = asyncio.create_task(self._more.wait())
                await asyncio.wait([more, self.task], return_when=asyncio.FIRST_COMPLETED)
                more.cancel()
                if self.task.done():
                    await self.task
                    assert condition(), self.said


@pytest.mark.parametrize("shell", SHELLS)
async def test_every_byte_of_a_large_log(tmp_path: Path, shell: str) -> None:
    path = tmp_path / "a log's file.out"
    path.write_bytes(_noise(3_000_000, 1))
    data, said = await _read(LocalLink(shell=_applet(tmp_path, shell)), path)
    assert data == path.read_bytes()
    assert said == []


def _applet(directory: Path, shell: str) -> str:
    """busybox is sh under that name alone."""
    if shell != "busybox":
        return shell
    link = directory / "sh"
    link.symlink_to(shutil.which("busybox") or "")
    return str(link)


async def test_an_empty_log(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"")
    assert await _read(LocalLink(), path) == (b"", [])


@pytest.mark.parametrize("seed", range(6))
async def test_cuts_at_any_byte_lose_and_double_nothing(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "log"
    path.write_bytes(_noise(2_000_000, seed))
    rng = random.Random(seed)
    link = LocalLink(cut_after=[rng.randrange(30, 900_000) for _ in range(5)])
    data, said = await _read(link, path)
    assert data == path.read_bytes()
    assert 1 <= len(said) <= 5
    assert all("cut" in one for one in said)


async def test_the_last_lines(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("".join(f"line {n}\n" for n in range(1000)))
    data, _ = await _read(LocalLink(), path, lines=3)
    assert data == b"line 997\nline 998\nline 999\n"
    cut = LocalLink(cut_after=[90])
    assert (await _read(cut, path, lines=3))[0] == data
    assert cut.opened == 2


async def test_the_last_bytes(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(_noise(10_000, 3))
    assert (await _read(LocalLink(), path, last_bytes=100))[0] == path.read_bytes()[-100:]
    assert (await _read(LocalLink(), path, last_bytes=20_000))[0] == path.read_bytes()


async def test_following_while_it_grows_and_the_link_goes(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(_noise(400_000, 5))
    link = LocalLink(cut_after=[200_000, 600_000])
    following = Following(link, path)
    await following.until_data(400_000)
    link.down = 2
    with path.open("ab") as file:
        file.write(_noise(300_000, 6))
    await following.until_data(700_000)
    following.ended.set()
    with path.open("ab") as file:
        file.write(b"last line\n")
    await following.task
    assert following.data == path.read_bytes()


async def test_a_log_that_is_not_there_yet(tmp_path: Path) -> None:
    path = tmp_path / "new" / "log"
    following = Following(LocalLink(), path)
    await following.until_said("not there yet")
    path.parent.mkdir()
    path.write_bytes(b"hello\n")
    await following.until_data(6)
    following.ended.set()
    await following.task
    assert following.data == b"hello\n"
    assert len(following.said) == 1


async def test_a_log_that_never_comes(tmp_path: Path) -> None:
    with pytest.raises(TunnelkitError, match="no log at") as caught:
        await _read(LocalLink(), tmp_path / "none")
    assert "not there" in caught.value.one_line()
    following = Following(LocalLink(), tmp_path / "none")
    following.ended.set()
    with pytest.raises(TunnelkitError, match="no log at"):
        await following.task


async def test_a_truncated_and_a_replaced_log(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"first attempt\n" * 100)
    following = Following(LocalLink(), path)
    await following.until_data(1400)
    path.write_bytes(b"second\n")  # the same file, shorter
    await following.until_said("truncated")
    await following.until_data(1407)
    other = tmp_path / "other"
    other.write_bytes(b"third, and longer than what was there\n")
    other.replace(path)
    await following.until_said("replaced")
    following.ended.set()
    await following.task
    assert following.data == b"first attempt\n" * 100 + b"second\n" + path.read_bytes()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read all")
async def test_a_log_that_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x")
    path.chmod(0)
    with pytest.raises(TunnelkitError, match="no log at") as caught:
        await _read(LocalLink(), path)
    assert "may not be read" in caught.value.one_line()


async def test_a_log_that_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (Path("/dev/null"), tmp_path, tmp_path / "pipe"):
        with pytest.raises(TunnelkitError, match="no log at"):
            await _read(LocalLink(), path)


async def test_a_log_that_pbs_writes_into_a_directory(tmp_path: Path) -> None:
    following = Following(LocalLink(), tmp_path, "7.login.OU")
    await following.until_said("not there yet")
    (tmp_path / "7.login.OU").write_text("step 1\n")
    await following.until_data(7)
    following.ended.set()
    await following.task
    assert following.data == b"step 1\n"
    named = Following(LocalLink(), tmp_path / "7.login.OU", "7.login.OU")
    named.ended.set()
    await named.task
    assert named.data == b"step 1\n"


async def test_a_host_without_a_shell_is_an_error_and_no_endless_loop(tmp_path: Path) -> None:
    with pytest.raises(ConnectionFailed, match="can't be read on login"):
        await _read(LocalLink(shell="false"), tmp_path / "log")


@pytest.mark.parametrize("lines", [None, 3])
async def test_a_file_system_that_tells_the_size_and_fails_to_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: int | None
) -> None:
    monkeypatch.setattr(reader_module, "_LONGEST_PAUSE_S", 0)
    path = tmp_path / "log"
    path.write_text("step 1\n")
    link = LocalLink(programs=put_program(tmp_path / "bin", "tail", "exit 1"))
    with pytest.raises(ConnectionFailed, match="can't be read on login") as caught:
        async with asyncio.timeout(20):
            await _read(link, path, lines=lines)
    assert "it can't be read to its size" in caught.value.one_line()
    assert link.opened == 5


async def test_following_goes_on_once_the_file_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "_LONGEST_PAUSE_S", 0)
    path, readable = tmp_path / "log", tmp_path / "readable"
    path.write_text("step 1\n")
    tail = put_program(tmp_path / "bin", "tail", f"[ -e '{readable}' ] || exit 1")
    link = LocalLink(programs=tail)
    following = Following(link, path)
    await following.until_said("it can't be read to its size")
    readable.touch()
    await following.until_data(7)
    following.ended.set()
    await following.task
    assert following.data == b"step 1\n"
    assert len(following.said) == 1


async def test_a_followed_file_that_can_t_be_read_after_the_job_s_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "_LONGEST_PAUSE_S", 0)
    path = tmp_path / "log"
    path.write_text("step 1\n")
    following = Following(LocalLink(programs=put_program(tmp_path / "bin", "tail", "exit 1")), path)
    await following.until_said("it can't be read to its size")
    following.ended.set()
    with pytest.raises(ConnectionFailed, match="can't be read on login"):
        await following.task


class Stall:
    """A stat that hangs, as on a file system that does not answer, until `end`."""

    def __init__(self, directory: Path) -> None:
        self._fifo = directory / "answer"
        os.mkfifo(self._fifo)
        self.programs = put_program(directory / "bin", "stat", f": <'{self._fifo}'")
        self._open: list[int] = []

    def end(self) -> None:
        """Let all go on that hang, and all that come."""
        self._open.append(os.open(self._fifo, os.O_RDWR))

    def close(self) -> None:
        """Leave nothing that hangs."""
        self.end()
        for descriptor in self._open:
            os.close(descriptor)


@pytest.fixture
def stall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stall]:
    monkeypatch.setattr(reader_module, "_SILENCE_S", 0.1)
    stalled = Stall(tmp_path)
    yield stalled
    stalled.close()


async def test_a_file_system_that_stalls_is_waited_for(tmp_path: Path, stall: Stall) -> None:
    path = tmp_path / "log"
    path.write_text("step 1\n")
    link = LocalLink(programs=stall.programs)
    following = Following(link, path)
    await following.until_said("file system does not answer")
    async with asyncio.timeout(20):
        for _ in range(4):
            await link.alive_asked.get()
    assert link.opened == 1, "another script would hang, too"
    assert len(following.said) == 1
    stall.end()
    await following.until_data(7)
    following.ended.set()
    await following.task
    assert following.data == b"step 1\n"


async def test_only_who_follows_waits_for_it_without_a_limit(tmp_path: Path, stall: Stall) -> None:
    path = tmp_path / "log"
    path.write_text("step 1\n")
    link = LocalLink(programs=stall.programs)
    async with asyncio.timeout(20):
        with pytest.raises(ConnectionFailed, match="can't be read") as caught:
            await _read(link, path)
    assert "does not answer" in (caught.value.cause or "") and link.opened == 1


async def test_silence_of_a_dead_link_is_a_cut(tmp_path: Path, stall: Stall) -> None:
    path = tmp_path / "log"
    path.write_text("step 1\n")
    link = LocalLink(programs=stall.programs, alive=False)
    following = Following(link, path)
    await following.until_said("the connection was cut")
    link.alive = True
    stall.end()
    await following.until_data(7)
    following.ended.set()
    await following.task
    assert following.data == b"step 1\n"
