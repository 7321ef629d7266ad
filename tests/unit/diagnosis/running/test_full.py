"""Running jobs that can't write any more, and full file systems that harm nobody."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.diagnosis.running.windows import JOB, window
from tunnelkit.diagnosis.evidence.storage import Amount, QuotaView, RoomView, StorageView
from tunnelkit.diagnosis.evidence.window import PlaceView
from tunnelkit.diagnosis.running.rules import judge_running
from tunnelkit.diagnosis.verdict import Certainty, Verdict
from tunnelkit.scheduler.rooms import parse_rooms
from tunnelkit.scheduler.sections import Section

GB = 1 << 30


def judged(*places: PlaceView, storage: StorageView | None = None) -> Verdict:
    return judge_running(JOB, [window(places=places)], 0.0, (), storage or StorageView())[0]


def place(**more: object) -> PlaceView:
    values: dict[str, object] = {"written": True, "size_bytes": 10 * GB, "free_bytes": 5 * GB}
    base = PlaceView("/scratch", "xfs", "/dev/sdb", True)
    return replace(base, **{**values, **more})  # type: ignore[arg-type]


def test_a_full_disk_that_the_job_writes_to() -> None:
    found = judged(place(free_bytes=0))
    assert (found.code, found.certainty) == ("storage-full", Certainty.PROVEN)
    assert found.sentence == "runs, and can't write any more: /scratch is full"
    assert found.because[0].text == "/scratch (xfs): 0 bytes free of 10 GB"
    none_left = judged(place(files=1000, files_free=0))
    assert none_left.because[0].text == "/scratch (xfs): 0 inodes free of 1,000"
    # Not asked, not answered, only read, or with room: no finding.
    for one in (place(), place(free_bytes=0, written=False), place(size_bytes=0, free_bytes=0)):
        assert judged(one).code == "nothing"
    assert judged(place(files=0, files_free=0)).code == "nothing"


def test_a_quota_by_the_node_and_by_the_login_host() -> None:
    full = QuotaView("/dev/sdb", "user", "me", Amount(50 * GB, 50 * GB))
    found = judged(place(), storage=StorageView((), (full,)))
    assert found.sentence == (
        "runs, and can't write any more: you have used 50.0 of 50.0 GB of /scratch (user quota)"
    )
    assert judged(place(written=False), storage=StorageView((), (full,))).code == "nothing"
    room = RoomView("/home/me", "/home", 10 * GB, GB, 0.9, 0.1, "/dev/sdb")
    found = judged(storage=StorageView((room,), (full,)))
    assert "of /home (user quota)" in found.sentence
    half = QuotaView("/dev/sdb", "user", "me", Amount(25 * GB, 50 * GB))
    assert judged(storage=StorageView((room,), (half,))).code == "nothing"
    none_left = RoomView("/home/me", "/home", 10 * GB, 0, 1.0, 0.1, "/dev/sdb")
    found = judged(storage=StorageView((none_left,)))
    assert "/home, where its log goes, is full" in found.sentence


def test_a_share_of_inodes_that_df_rounds_up_is_not_all_of_them() -> None:
    """GNU df prints 100% for 99.01 %."""
    for free, code in ((990, "nothing"), (0, "storage-full")):
        text = (
            "tk-room /home/me\n/dev/sdb 1000 500 500 50% /home\n"
            f"/dev/sdb 100000 {100_000 - free} {free} 100% /home\n"
        )
        found = judged(storage=StorageView(parse_rooms({"rooms": Section(text, 0)})))
        assert found.code == code
    assert found.certainty is Certainty.PROVEN
    assert "/home, where its log goes, has no inodes" in found.sentence


@pytest.mark.parametrize(
    ("blocks", "files", "certainty"),
    [
        # 80 GB of 10 TB, and 8,000 files: healthy.
        (Amount(10_652_000_000 << 10, 10_737_418_240 << 10), None, None),
        (None, Amount(992_000, 1_000_000), None),
        (Amount(50 * GB - (3 << 20), 50 * GB), None, Certainty.LIKELY),
        (Amount(50 * GB - 4096, 50 * GB), None, Certainty.PROVEN),
        (Amount(51 * GB, 50 * GB), Amount(10, 1000), Certainty.PROVEN),
        (Amount(GB, 50 * GB), Amount(995, 1000), Certainty.LIKELY),
        (Amount(GB, 50 * GB), Amount(1000, 1000), Certainty.PROVEN),
    ],
)
def test_a_quota_with_room_left(
    blocks: Amount | None, files: Amount | None, certainty: Certainty | None
) -> None:
    quota = QuotaView("/dev/sdb", "group", "lab", blocks, files)
    found = judged(place(), storage=StorageView((), (quota,)))
    if certainty is None:
        assert found.code == "nothing"
        return
    assert (found.code, found.certainty) == ("storage-full", certainty)
    assert ("files" in found.sentence) is (files is not None and files.used > 10)


def test_of_two_quotas_the_one_that_is_used_up() -> None:
    nearly = QuotaView("/dev/sdb", "user", "me", None, Amount(995, 1000))
    full = QuotaView("/dev/sdb", "group", "lab", Amount(50 * GB, 50 * GB))
    found = judged(place(), storage=StorageView((), (nearly, full)))
    assert found.certainty is Certainty.PROVEN and "group lab has used" in found.sentence
