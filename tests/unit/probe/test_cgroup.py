"""Cgroups of both versions, from trees as schedulers make them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tunnelkit.probe import cgroup
from tunnelkit.probe.black_box.box_memory import MemoryCounts

_NODE = {"meminfo": "MemTotal: 1000000 kB\nMemAvailable: 800000 kB\n", "vmstat": "oom_kill 3\n"}


class Node:
    """A pretend /proc, and a pretend /sys/fs/cgroup."""

    def __init__(self, base: Path, version: int, path: str, root: str = "/") -> None:
        self.proc, self.top, self.version = base / "proc", base / "a cgroup", version
        (self.proc / "self").mkdir(parents=True)
        self.top.mkdir()
        point = str(self.top).replace(" ", r"\040")
        kind = "cgroup2 cgroup2 rw" if version == 2 else "cgroup cgroup rw,memory"
        line = "1 2 0:30 {} {} rw - {}\n"
        (self.proc / "self" / "mountinfo").write_text("garbage\n" + line.format(root, point, kind))
        name = "0::" if version == 2 else "4:memory:"
        (self.proc / "self" / "cgroup").write_text(f"9:name=systemd:/x\n{name}{path}\n")
        for each, text in _NODE.items():
            (self.proc / each).write_text(text)

    def group(self, path: str, **values: int | str) -> None:
        """Make a group, or change its figures."""
        directory = self.top / path
        directory.mkdir(parents=True, exist_ok=True)
        if self.version == 2:
            events = "".join(
                f"{one} {values.get(one, 0)}\n" for one in ("low", "max", "oom", "oom_kill")
            )
            (directory / "memory.events").write_text(events)
            (directory / "memory.events.local").write_text(
                str(values.get("local", "max 0\noom 0\noom_kill 0\n"))
            )
            (directory / "memory.max").write_text(f"{values.get('limit', 'max')}\n")
            (directory / "memory.current").write_text("5\n")
        else:
            (directory / "memory.oom_control").write_text(
                f"oom_kill_disable 0\nunder_oom 0\noom_kill {values.get('oom_kill', 0)}\n"
            )
            none = 9223372036854771712
            (directory / "memory.limit_in_bytes").write_text(f"{values.get('limit', none)}\n")
            (directory / "memory.failcnt").write_text(f"{values.get('max', 0)}\n")
            (directory / "memory.usage_in_bytes").write_text("5\n")
        (directory / "cgroup.procs").write_text(str(values.get("procs", "")))

    def free(self, kilobytes: int) -> None:
        (self.proc / "meminfo").write_text(f"MemTotal: 1000000 kB\nMemAvailable: {kilobytes} kB\n")

    def counts(self, job: str) -> MemoryCounts:
        made = MemoryCounts(job, str(self.proc))
        made.look()
        return made


def by_level(counts: MemoryCounts) -> dict[object, dict[str, object]]:
    return {one["level"]: dict(one) for one in counts.lines() if one["kind"] == "memory"}


SLURM_2 = "/system.slice/slurmstepd.scope/job_11/step_batch/user/task_0"
SLURM_1 = "/slurm/uid_5/job_11/step_batch/task_0"


@pytest.mark.parametrize(
    ("version", "path", "job", "levels"),
    [
        (2, SLURM_2, "11", ["task", "task", "step", "job", "above", "above"]),
        (1, SLURM_1, "11", ["task", "step", "job", "above", "above"]),
        (1, SLURM_1, "1", ["above"] * 5),
        (1, "/pbs_jobs.service/jobid/12.server", "12", ["job", "above", "above"]),
        (2, "/user.slice/session-3.scope", "11", ["above", "above"]),
        (2, "/../../x", "11", []),
    ],
)
def test_the_levels_of_a_job(
    tmp_path: Path, version: int, path: str, job: str, levels: list[str]
) -> None:
    node = Node(tmp_path, version, path)
    if ".." not in path:
        node.group(path[1:])
    assert [one.level for one in cgroup.memory_groups(job, str(node.proc))] == levels


def test_a_container_sees_a_part_of_the_tree(tmp_path: Path) -> None:
    node = Node(tmp_path, 1, "/docker/ab/job_11", root="/docker/ab")
    node.group("job_11", procs="7\n8\n")
    (group, *_) = cgroup.memory_groups("11", str(node.proc))
    assert cgroup.processes(group) == [7, 8]


def test_version_2_at_the_limit_of_the_job(tmp_path: Path) -> None:
    node, job = Node(tmp_path, 2, SLURM_2), "system.slice/slurmstepd.scope/job_11"
    node.group(SLURM_2[1:])
    node.group(f"{job}/step_batch")
    node.group("system.slice/slurmstepd.scope")
    node.group(job, limit=1000, oom=4, oom_kill=4)
    counts = node.counts("11")
    node.group(job, limit=1000, oom=5, oom_kill=6, max=9)
    assert counts.look().killed == 2
    found = by_level(counts)
    assert (found["job"]["oom"], found["job"]["oom_kill"]) == (1, 2), "differences"
    assert found["step"]["oom"] == 0 and found["above"]["oom"] == 0
    # Others' kills are counted above the job.
    assert found["above"]["oom_kill"] is None


def test_version_2_the_node_ran_out(tmp_path: Path) -> None:
    node, job = Node(tmp_path, 2, SLURM_2), "system.slice/slurmstepd.scope/job_11"
    node.group(SLURM_2[1:])
    # Another job has met its own limit: the groups above count that, too.
    node.group("system.slice/slurmstepd.scope", oom=7, oom_kill=7, max=7)
    node.group(job, limit=1000)
    counts = node.counts("11")
    node.group("system.slice/slurmstepd.scope", oom=9, oom_kill=9, max=99)
    node.group(job, limit=1000, oom_kill=1)
    assert counts.look().killed == 1
    levels = [one for one in counts.lines() if one["kind"] == "memory"]
    assert {one["oom"] for one in levels} == {0}


@pytest.mark.parametrize(
    ("free", "met", "oom"),
    [
        (700_000, 1, 1),
        # The limit is met all the time by page cache, and the node is out of memory.
        (1_000, 1, None),
        (1_000, 0, 0),
        # No limit was met, and the node had memory: it is not known why.
        (700_000, 0, None),
    ],
)
def test_version_1_counts_by_what_the_node_had(
    tmp_path: Path, free: int, met: int, oom: int | None
) -> None:
    node, job = Node(tmp_path, 1, SLURM_1), "slurm/uid_5/job_11"
    node.group(SLURM_1[1:])
    node.group(job, limit=1000, max=5)
    node.free(free)
    counts = node.counts("11")
    node.group(job, limit=1000, max=5 + met)
    node.group(SLURM_1[1:], oom_kill=1)
    assert counts.look().killed == 1
    found = by_level(counts)
    assert (found["job"]["oom"], found["job"]["oom_kill"]) == (oom, 1)
    assert found["task"]["oom"] == 0, "it has no limit"


def test_version_1_keeps_the_counts_of_a_step_that_is_gone(tmp_path: Path) -> None:
    node, step = Node(tmp_path, 1, SLURM_1), "slurm/uid_5/job_11/step_0"
    node.group(SLURM_1[1:])
    counts = node.counts("11")
    node.group(step, oom_kill=2)
    assert counts.look().killed == 2, "a new group began with zero"
    for file in (node.top / step).iterdir():
        file.unlink()
    (node.top / step).rmdir()
    assert counts.look().killed == 0
    assert by_level(counts)["job"]["oom_kill"] == 2


def test_a_group_that_others_share_proves_nothing(tmp_path: Path) -> None:
    node = Node(tmp_path, 2, "/user.slice/session-3.scope")
    node.group("user.slice/session-3.scope", limit=1000)
    counts = node.counts("11")
    node.group("user.slice/session-3.scope", limit=1000, oom=1, oom_kill=1)
    assert counts.look().killed == 1
    inner = next(one for one in counts.lines() if one["kind"] == "memory")
    assert (inner["oom"], inner["oom_kill"]) == (None, 1)


def test_without_cgroups_nothing_is_counted(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    counts = MemoryCounts("11", str(tmp_path))
    assert counts.look().killed == 0
    assert [one["kind"] for one in counts.lines()] == ["node"]
