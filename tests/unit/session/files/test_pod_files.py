"""The reports and errors of several pods become one."""

from __future__ import annotations

import pytest

from tunnelkit.errors import MirrorConflict, MirrorError, TunnelkitError
from tunnelkit.mirror.api import SyncReport
from tunnelkit.session.files.mirror_set import named_error
from tunnelkit.session.files.pod_files import all_of, merged


async def _fails(error: Exception) -> int:
    raise error


async def _gives(value: int) -> int:
    return value


def test_a_file_counts_once_and_paths_have_their_pod() -> None:
    mine = SyncReport(sent=2, sent_bytes=9, kept=("a",), proven=2, by_node=True)
    other = SyncReport(sent=3, deleted=1, replaced=("b",), replaced_dir="/r", by_node=True)
    report = merged(["w-0", "w-1"], [mine, other])
    assert (report.sent, report.sent_bytes, report.deleted, report.proven) == (3, 9, 1, 2)
    assert (report.kept, report.replaced, report.replaced_dir) == (("a",), ("w-1: b",), "/r")
    assert report.by_node
    assert not merged(["w-0", "w-1"], [mine, SyncReport()]).by_node


async def test_the_first_error_names_the_other_pods_and_keeps_its_kind() -> None:
    one = named_error("w-1", MirrorConflict("1 file was changed", cause="not overwritten"))
    two = named_error("w-2", MirrorError("it is full"))
    with pytest.raises(MirrorConflict) as raised:
        await all_of([_gives(1), _fails(one), _fails(two)])
    assert raised.value.one_line() == (
        "w-1: 1 file was changed: not overwritten; also w-2: it is full"
    )
    with pytest.raises(TunnelkitError, match="w-2: it is full"):
        await all_of([_gives(1), _fails(two)])
    assert await all_of([_gives(1), _gives(2)]) == [1, 2]


async def test_a_defect_is_no_error_of_a_pod() -> None:
    with pytest.raises(ZeroDivisionError):
        await all_of([_fails(MirrorError("x")), _fails(ZeroDivisionError())])
