"""The black box as a process: beside a script, through signals, to the end."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.unit.probe.box_rig import is_there, running, until
from tunnelkit.diagnosis.black_box.record import parse_box
from tunnelkit.probe.black_box import box_file
from tunnelkit.probe.black_box.box_record import MOST_BYTES, Record
from tunnelkit.probe.wait_status import WaitStatuses


def knows_wait_status() -> bool:
    """True where Linux tells the end of a process that is not one's child (6.15)."""
    statuses = WaitStatuses()
    own = (os.getpid(), 0)
    statuses.watch(own)
    known = bool(statuses._open)
    statuses.close()
    return known


def test_it_ends_with_the_script_and_has_its_code(tmp_path: Path) -> None:
    with running(tmp_path / "tk", "exit 7") as job:
        assert job.process.wait(30) == 0
        assert job.lines("end")[0]["code"] == 7
        assert stat.S_IMODE(job.path.stat().st_mode) == 0o600
        assert stat.S_IMODE(job.path.parent.stat().st_mode) == 0o700
        assert not is_there(job.box_pid)
        assert [one.name for one in job.path.parent.iterdir()] == [job.path.name]


def test_a_script_that_is_killed_ends_it_too(tmp_path: Path) -> None:
    with running(tmp_path / "tk", "exec sleep 60") as job:
        until(lambda: job.lines("head"), "the first record")
        pid = job.box_pid
        job.process.kill()
        job.process.wait()
        until(lambda: not is_there(pid), "the box's end")
        end = job.lines("end")[0]
        assert end["code"] is None


def test_term_is_written_at_once_with_its_sender(tmp_path: Path) -> None:
    with running(tmp_path / "tk", "exec sleep 60", words="log") as job:
        until(lambda: job.lines("head"), "the first record")
        os.kill(job.box_pid, signal.SIGTERM)
        # The regular write comes after 30 s only.
        until(lambda: job.lines("signal"), "the record of TERM", 10.0)
        seen = job.lines("signal")[0]
        assert (seen["signal"], seen["uid"], seen["pid"]) == (15, os.getuid(), os.getpid())
        assert is_there(job.box_pid), "the script still runs"


def test_kill_in_any_moment_leaves_a_whole_record(tmp_path: Path) -> None:
    """The writes go on as fast as they can, and KILL comes at a random time."""
    writer = (
        "import sys; from tunnelkit.probe.black_box.box_file import BoxFile\n"
        "file = BoxFile(sys.argv[1], '1.0.jsonl')\n"
        "data = b'{\"kind\":\"head\",\"format\":1}\\n' + b'x' * 250000 + b'\\nlast'\n"
        "print('up', flush=True)\n"
        "while True: file.write(data, lasting=False)\n"
    )
    for number in range(20):
        argv = [sys.executable, "-c", writer, str(tmp_path)]
        with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(0.003 * number)
            process.kill()
        path = tmp_path / "1.0.jsonl"
        if path.exists():
            assert path.read_bytes().endswith(b"\nlast")
    assert path.exists()


@pytest.mark.skipif(not knows_wait_status(), reason="needs Linux 6.15")
def test_the_wait_status_of_a_process_of_another_parent(tmp_path: Path) -> None:
    program = "sh -c 'sleep 2; kill -SEGV $$'; sh -c 'sleep 2; exit 9'; exit 3"
    with running(tmp_path / "tk", program) as job:
        job.process.wait(30)
        gone = {(one["code"], one["signal"]) for one in job.lines("gone")}
        assert (None, 11) in gone and (9, None) in gone


def test_a_zombie_is_told_once_with_its_end(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(
        "import os, time\nif os.fork() == 0: time.sleep(3); os._exit(5)\ntime.sleep(7)\nos.wait()\n"
    )
    with running(tmp_path / "tk", f"python3 {tmp_path}/p.py") as job:
        assert job.process.wait(30) == 0
        told = [one["code"] for one in job.lines("gone") if one["code"] == 5]
        assert told == [5] and job.lines("end")


def test_processes_of_another_job_are_not_seen(tmp_path: Path) -> None:
    env = {**os.environ, "SLURM_JOB_ID": "99078"}
    with subprocess.Popen(["sleep", "60"], env=env) as other:
        try:
            with running(tmp_path / "tk", "sleep 2") as job:
                until(lambda: job.lines("sample"), "a sample")
                job.process.wait(30)
                pids = {row[0] for one in job.lines("sample") for row in one["top"]}
                pids |= {one["pid"] for one in job.lines("gone")}
                assert other.pid not in pids and pids
        finally:
            other.kill()


def test_a_rank_is_known_by_its_environment(tmp_path: Path) -> None:
    with running(tmp_path / "tk", "RANK=3 sleep 2") as job:
        job.process.wait(30)
        assert ("sleep", 3) in {(one["name"], one["rank"]) for one in job.lines("gone")}


def test_a_directory_of_another_kind_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "boxes").symlink_to(tmp_path / "elsewhere")
    assert not box_file.open_directory(str(tmp_path / "boxes"))


def test_old_boxes_are_removed_and_nothing_else(tmp_path: Path) -> None:
    for number in range(210):
        (tmp_path / f"{number}.0.jsonl").write_text("")
        os.utime(tmp_path / f"{number}.0.jsonl", (1000 + number, 1000 + number))
    for name in ("notes.txt", "7.jsonl", "x.0.jsonl"):
        (tmp_path / name).write_text("")
        os.utime(tmp_path / name, (0, 0))
    (tmp_path / ".8.0.jsonl.new").write_text("")
    os.utime(tmp_path / ".8.0.jsonl.new", (0, 0))
    box_file.remove_old(str(tmp_path), now_s=1209.0)
    left = {one.name for one in tmp_path.iterdir()}
    assert {"notes.txt", "7.jsonl", "x.0.jsonl"} <= left
    assert ".8.0.jsonl.new" not in left
    assert sum(name.endswith(".0.jsonl") for name in left) - 1 == 199
    box_file.remove_old(str(tmp_path), now_s=1209.0 + 31 * 24 * 3600)
    assert {one.name for one in tmp_path.iterdir()} == {"notes.txt", "7.jsonl", "x.0.jsonl"}


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({"SLURM_JOB_ID": "4711"}, "4711"),
        (
            {
                "SLURM_JOB_ID": "4713",
                "SLURM_ARRAY_JOB_ID": "4711",
                "SLURM_ARRAY_TASK_ID": "2",
            },
            "4711_2",
        ),
        ({"PBS_JOBID": "12.server"}, "12"),
        ({"PBS_JOBID": "12[3].server.example"}, "12_3"),
        ({"PBS_JOBID": "../../x"}, ""),
        ({}, ""),
    ],
)
def test_the_name_of_a_job(environ: dict[str, str], name: str) -> None:
    assert box_file.job_name(environ) == name


def test_the_attempt_is_counted_where_the_scheduler_does_not_say(tmp_path: Path) -> None:
    pbs = {"PBS_JOBID": "12.server"}
    assert box_file.attempt(pbs, str(tmp_path), "12") == 0
    (tmp_path / "12.0.jsonl").write_text("")
    assert box_file.attempt(pbs, str(tmp_path), "12") == 1
    slurm = {"SLURM_JOB_ID": "12", "SLURM_RESTART_COUNT": "2"}
    assert box_file.attempt(slurm, str(tmp_path), "12") == 2


def test_the_largest_record_has_its_end(tmp_path: Path) -> None:
    record = Record({"job": "1", "attempt": 0, "node": "n" * 100, "started_s": 1.0})
    text = '"' * 160
    for at in range(3000):
        line = {"time_s": float(at), "pid": at, "name": '"' * 20, "command": text, "signal": 9}
        record.add_gone({**line, "code": None, "rank": 1, "cpu_s": 1.0, "rss_bytes": 1 << 40})
        record.events.append({"kind": "signal", "signal": 15, "time_s": 1.0, "name": '"' * 20})
        top = [[1 << 22, '"' * 20, 1, 1 << 45, 1e9, "R"] for _ in range(8)]
        record.samples.append({"time_s": float(at), "cpu_s": 1e9, "top": top})
        record.minutes.append({"time_s": -float(at), "cpu_s": 1e9, "rss_bytes": 1 << 45})
    record.log = "/" * 1000, "\x1b" * 65536
    record.end = {"time_s": 1.0, "code": 137, "agent": 1}
    data = record.encode(5.0)
    assert len(data) <= MOST_BYTES
    box = parse_box(data.decode())
    assert box is not None and box.agent_code == 137 and box.written_s == 5.0
    assert len(box.log_text) > 5000
