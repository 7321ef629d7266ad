"""What the black box sees of a process that is being killed."""

from __future__ import annotations

import os

import pytest

from tunnelkit.probe.black_box.box_record import Record
from tunnelkit.probe.black_box.box_watch import Watch
from tunnelkit.probe.processes import JobProcesses, Key, Process


def test_a_killed_process_is_as_large_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel takes its memory before it is a zombie; the box may look in between."""
    one = Process(4711, 1, 1, "python3", "S", 1.0, 80 << 20, 1, None)
    dying = one._replace(state="R", rss_bytes=0)
    zombie = dying._replace(state="Z", wait_status=9)
    looks: list[dict[Key, Process]] = [{(4711, 1): each} for each in (one, dying, zombie)]
    monkeypatch.setattr(JobProcesses, "look", lambda self: looks.pop(0))
    record = Record({})
    watch = Watch({"SLURM_JOB_ID": "99079"}, record, {os.getpid()})
    try:
        for now_s in (1.0, 2.0, 3.0):
            watch.look(now_s)
    finally:
        watch.close()
    (line,) = record.first_failed
    assert (line["pid"], line["signal"], line["rss_bytes"]) == (4711, 9, 80 << 20)
