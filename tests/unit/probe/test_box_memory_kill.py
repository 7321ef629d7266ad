"""A real kill for memory by the kernel, in a real memory cgroup of this test's own."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.probe.box_rig import running
from tunnelkit.diagnosis.black_box.record import parse_box
from tunnelkit.diagnosis.ended.rules import judge_end
from tunnelkit.diagnosis.evidence.box import BoxView
from tunnelkit.diagnosis.evidence.end import EndView
from tunnelkit.diagnosis.verdict import Certainty

_TOP = Path("/sys/fs/cgroup/memory")
#: Grows by 4 MB each 0.2 s: the box sees it several times.
_HOG = "import time; held = []\nwhile True: held.append(bytearray(4 << 20)); time.sleep(0.2)"
_LIMIT = 80 << 20
_JOB = "99079"

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(
        os.geteuid() != 0 or not os.access(_TOP / "memory.oom_control", os.R_OK),
        reason="needs root and cgroup version 1",
    ),
]


@pytest.fixture
def groups() -> Iterator[list[Path]]:
    """The cgroups of a Slurm job, as slurmd makes them: top, user, job, step."""
    top = _TOP / f"tk{os.environ.get('TK_TEST_RUN', '')}box-{secrets.token_hex(4)}"
    made = [top, top / "uid_0", top / "uid_0" / f"job_{_JOB}"]
    made += [made[-1] / "step_batch"]
    try:
        for one in made:
            one.mkdir()
        yield made
    finally:
        for one in reversed([*made, *made[2].glob("step_0")]):
            for _ in range(100):
                if not one.exists():
                    break
                try:
                    one.rmdir()
                except OSError:
                    time.sleep(0.05)


def box_of(tmp_path: Path, step: Path, program: str) -> BoxView:
    with running(tmp_path / "tk", program, job=_JOB, within=str(step)) as job:
        assert job.process.wait(60) == 0
        box = parse_box(job.path.read_text())
    assert box is not None
    return box


def hog(tmp_path: Path) -> str:
    (tmp_path / "hog.py").write_text(_HOG)
    return f"python3 {tmp_path}/hog.py"


def test_a_kill_at_the_limit_of_the_job(tmp_path: Path, groups: list[Path]) -> None:
    (groups[2] / "memory.limit_in_bytes").write_text(str(_LIMIT))
    box = box_of(tmp_path, groups[3], f"RANK=2 {hog(tmp_path)}; exit 0")
    levels = {one.level: one for one in box.memory}
    assert levels["job"].oom == 1 and levels["job"].oom_kill == 1
    assert levels["job"].limit_bytes == _LIMIT
    assert levels["step"].oom == 0
    assert box.node_oom_kills and box.killed_s is not None
    (victim,) = box.victims
    assert (victim.name, victim.rank) == ("python3", 2)
    assert (victim.rss_bytes or 0) > _LIMIT // 3

    # Job and accounting are gone.
    verdict = judge_end(None, EndView(), 0.0, box)[0]
    assert (verdict.code, verdict.certainty) == ("oom-limit", Certainty.PROVEN)
    assert "python3 (rank 2" in verdict.sentence and "80 MB" in verdict.sentence


def test_a_kill_in_another_step_whose_group_is_gone(tmp_path: Path, groups: list[Path]) -> None:
    """As srun's steps: a group beside the script's, removed before the next look."""
    step = groups[2] / "step_0"
    step.mkdir()
    (step / "memory.limit_in_bytes").write_text(str(_LIMIT))
    program = f"""
sh -c 'echo $$ >{step}/cgroup.procs; exec {hog(tmp_path)}'
sleep 2
rmdir {step}
sleep 2
"""
    box = box_of(tmp_path, groups[3], program)
    levels = {one.level: one for one in box.memory}
    assert levels["job"].oom_kill == 1
    assert levels["step"].oom_kill == 0
    assert len(box.victims) == 1


def test_page_cache_at_the_limit_is_no_kill(tmp_path: Path, groups: list[Path]) -> None:
    (groups[2] / "memory.limit_in_bytes").write_text(str(_LIMIT))
    file = tmp_path / "large"
    program = f"dd if=/dev/zero of={file} bs=1M count=160 2>/dev/null; sleep 2; rm {file}"
    box = box_of(tmp_path, groups[3], program)
    levels = {one.level: one for one in box.memory}
    assert levels["job"].refused, "the limit was met"
    assert (levels["job"].oom, levels["job"].oom_kill) == (0, 0)
    assert box.killed_s is None and not box.victims
    assert judge_end(None, EndView(), 0.0, box)[0].code == "ok"
