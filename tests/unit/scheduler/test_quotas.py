"""Quotas as `quota` and `lfs quota` print them, and their figures in the verdict."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.diagnosis.evidence.storage import Amount, QuotaView, RoomView
from tunnelkit.diagnosis.storage import full_quota, quota_lines, used_of
from tunnelkit.scheduler.quotas import parse_quotas

# The form of quota-tools 4.06: the grace columns are blank within the limits.
QUOTA = """\
Disk quotas for user me (uid 1000):
     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace
nfs1:/export/home 52428800* 51200000 52428800   6days    1000       0       0
nfs1:/export/work   1000       0       0            1000       0       0
/dev/mapper/vg-scratch    200  100000  200000            1000*   900    1000   23:59
Disk quotas for group lab (gid 500):
     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace
nfs1:/export/home 40000   50000   60000            1000       0       0
"""
# Without -w a long name stands alone.
WRAPPED = """\
     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace
nfs1.cluster.example.org:/export/home
                  40000   50000   60000            1000       0       0
"""
# Its week is over: the soft limit counts.
EXPIRED = """\
Disk quotas for user me (uid 1000):
     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace
      /dev/sda1   50001*  50000   60000    none    1000       0       0
"""
# As Lustre's manual and Lustre 2.12 print it.
LUSTRE = """\
Disk quotas for usr bob (uid 6000):
     Filesystem  kbytes   quota   limit   grace   files   quota   limit   grace
        /lustre   30400*  30720   30720  6d23h56m44s    9999   10240   10240       -
uid 6000 is using default file quota setting
Disk quotas for grp chem (gid 7000):
     Filesystem    used   quota   limit   grace   files   quota   limit   grace
/lustre/a/very/long/path/of/a/project
                [1234]      0    5000       -      10       0     100       -
Disk quotas for prj 77 (pid 77):
     Filesystem  kbytes   quota   limit   grace   files   quota   limit   grace
        /lustre 5242880*      0 5242880       -      10       0       0       -
"""
KIB = 1024


def test_quota() -> None:
    home, scratch, group = parse_quotas(QUOTA)
    assert home == QuotaView(
        "nfs1:/export/home", "user", "me", Amount(52428800 * KIB, 52428800 * KIB)
    )
    assert scratch.blocks == Amount(200 * KIB, 200000 * KIB)
    assert scratch.files == Amount(1000, 1000) and scratch.full
    assert (group.kind, group.owner, group.full) == ("group", "lab", False)
    [wrapped] = parse_quotas(WRAPPED)
    assert wrapped.filesystem == "nfs1.cluster.example.org:/export/home"
    [expired] = parse_quotas(EXPIRED)
    assert expired.blocks == Amount(50001 * KIB, 50000 * KIB) and expired.full


@pytest.mark.parametrize(("grace", "hard", "limit"), [
    ("6d23h", 0, None), ("6d23h", 60000, 60000), ("none", 0, 50000), ("none", 60000, 50000),
    ("expired", 0, 50000), ("", 0, None), ("-", 0, None),
])  # fmt: skip
def test_a_soft_limit_counts_when_its_grace_is_over(
    grace: str, hard: int, limit: int | None
) -> None:
    text = f"/dev/sda1   50001*  50000   {hard} {grace}    10       0       100\n"
    [found] = parse_quotas(text)
    assert found.blocks == (Amount(50001 * KIB, limit * KIB) if limit else None)


def test_lustre() -> None:
    user, group, project = parse_quotas(LUSTRE)
    assert (user.filesystem, user.kind) == ("/lustre", "user")
    assert user.files == Amount(9999, 10240)
    assert group.blocks == Amount(1234 * KIB, 5000 * KIB) and not group.full
    assert group.filesystem == "/lustre/a/very/long/path/of/a/project"
    assert (project.kind, project.owner, project.full) == ("project", "77", True)


@pytest.mark.parametrize(
    "text",
    ["", "Disk quotas for user me (uid 1000): none\n", "quota: Cannot resolve mountpoint path\n"],
)
def test_without_a_limit_there_is_nothing(text: str) -> None:
    assert parse_quotas(text) == ()


def test_figures() -> None:
    room = RoomView("/home/me/x", "/home", 1 << 40, 1 << 39, 0.5, None, "nfs1:/export/home")
    found = parse_quotas(QUOTA)
    full = full_quota(found, room)
    assert full is not None
    assert used_of(full, room) == "you have used 50.0 of 50.0 GB of /home (user quota)"
    assert [one.text for one in quota_lines(found, room)] == [
        "/home: 50.0 of 50.0 GB used (user quota)",
        "/home: 39.1 of 58.6 MB used (group quota of lab)",
    ]
    other = RoomView("/work", "/work", 1, 1, 0.0, None, "nfs1:/export/work")
    assert full_quota(found, other) is None and quota_lines(found, other) == []
    scratch = RoomView("/s/x", "/s", 1, 1, 0.0, None, "/dev/mapper/vg-scratch")
    full = full_quota(found, scratch)
    assert full is not None
    assert used_of(full, scratch) == "you have used 1,000 of 1,000 files of /s (user quota)"
    below = RoomView("/lustre/x/y", "/lustre", 1, 1, 0.0, None, "10.0.0.1@o2ib:/l")
    assert [one.kind for one in parse_quotas(LUSTRE) if one.full] == ["project"]
    full = full_quota(parse_quotas(LUSTRE)[2:], below)
    assert full is not None and used_of(full, below).startswith("project 77 has used 5.0 of 5.0 GB")


@given(st.text(max_size=300))
def test_any_text_is_read(text: str) -> None:
    for one in parse_quotas(f"{text}\n{QUOTA}\n{text}"):
        for amount in (one.blocks, one.files):
            assert amount is None or amount.limit > 0
        quota_lines([one], None)
        if one.full:
            used_of(one, None)
