"""What a broken link has held is given back, though small things lie between."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.mux.rig import ends, soon
from tunnelkit.mux import mux
from tunnelkit.mux.malloc import give_back

_GLIBC = pytest.mark.skipif(
    sys.platform != "linux" or platform.libc_ver()[0] != "glibc", reason="glibc alone can"
)


def _resident_kib() -> int:
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["RssAnon"].split()[0])


@_GLIBC
def test_free_pages_go_back_to_the_system() -> None:
    held = [bytes(16 << 10) for _ in range(4_000)]
    full = _resident_kib()
    del held[::2], held[::2], held[::2]  # the last ones keep the heap as long as it is
    freed_kib = (4_000 - len(held)) * 16
    assert _resident_kib() > full - freed_kib / 4, "else there is nothing to be done"
    give_back()
    assert _resident_kib() < full - freed_kib / 2


_THREADS = """\
import sys, threading
from tunnelkit.mux.malloc import one_heap
if sys.argv[1] == "one":
    one_heap()
begun = threading.Barrier(9)
def work():
    held = bytes(4096)
    begun.wait()
    begun.wait()
for _ in range(8):
    threading.Thread(target=work).start()
begun.wait()
# A thread's heap is reserved in one piece of 64 MiB, of which little is used at first.
print(sum(line.split()[1] == "---p" and _size(line) > 60 << 20 for line in open("/proc/self/maps")))
begun.wait()
"""


@_GLIBC
def test_threads_share_one_heap() -> None:
    def heaps(how: str) -> int:
        size = "def _size(line): a, b = line.split()[0].split('-'); return int(b, 16) - int(a, 16)"
        argv = [sys.executable, "-c", f"{size}\n{_THREADS}", how]
        return int(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)

    assert heaps("each") > 0
    assert heaps("one") == 0


async def test_each_new_link_gives_back_what_the_last_one_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[str] = []
    monkeypatch.setattr(mux, "give_back", lambda: given.append("given"))
    async with ends() as pair:
        channel = pair.client.mux.open({})
        assert not given
        await pair.cut_at_client()
        pair.link()
        channel.close()
        await soon(channel.closed())
    assert given == ["given"] * 2, "at both ends"
