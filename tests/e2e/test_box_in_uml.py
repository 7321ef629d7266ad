"""Real kills for memory in cgroup version 2: a kernel of its own, User-Mode Linux (Debian).

`TK_UML`: another path of `linux.uml`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from tests.support.places import short_dir
from tunnelkit import probe_zip
from tunnelkit.diagnosis.black_box.record import parse_box
from tunnelkit.diagnosis.ended.rules import judge_end
from tunnelkit.diagnosis.evidence.box import BoxView
from tunnelkit.diagnosis.evidence.end import EndView
from tunnelkit.diagnosis.verdict import Certainty

_UML = os.environ.get("TK_UML") or shutil.which("linux.uml")

#: Process 1 there. The groups are as slurmd makes them; the program grows without end.
INIT = """\
#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin SLURM_JOB_ID=77 HOME=/run
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /run
mount -t cgroup2 none /sys/fs/cgroup
at=/sys/fs/cgroup
for name in system.slice slurmstepd.scope job_77 step_batch user task_0; do
  echo +memory >$at/cgroup.subtree_control
  at=$at/$name
  mkdir $at
  [ $name != job_77 ] || echo {limit} >$at/memory.max
done
mkdir /run/tk
cat >/run/job.sh <<'END'
echo $$ >$1/cgroup.procs
{python} -I -S {zip} box /run/tk /run/tk/status & box=$!
echo "running here $$" >/run/tk/status
while [ ! -e /run/tk/boxes ]; do sleep 0.1; done
RANK=1 {python} -I -S -c '
import time
held = []
while True:
    held.append(bytearray(8 << 20))
    time.sleep(0.1)'
echo "ended $?" >/run/tk/status
kill -USR2 $box
wait $box
END
sh /run/job.sh $at
echo TK-BEGIN
cat /run/tk/boxes/*.jsonl
echo TK-END
echo o >/proc/sysrq-trigger
sleep 60
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(_UML is None, reason="Debian's user-mode-linux is not installed"),
]


def box_after(limit: str) -> BoxView:
    base = short_dir("u")
    try:
        archive, init = base / "probe.zip", base / "init.sh"
        archive.write_bytes(probe_zip.build().data)
        # Its root is this machine's, read only: any Python outside a home serves.
        python = shutil.which("python3", path="/usr/bin:/bin") or sys.executable
        init.write_text(INIT.format(limit=limit, python=python, zip=archive))
        init.chmod(0o755)
        words = ["mem=200M", "rootfstype=hostfs", "rootflags=/", "ro", f"init={init}"]
        done = subprocess.run(
            [str(_UML), *words, "con=null", "con0=fd:0,fd:1"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=120,
            check=False,
        )
        text = done.stdout.decode(errors="replace").replace("\r", "")
        _, begun, rest = text.partition("TK-BEGIN\n")
        assert begun, text[-2000:]
        box = parse_box(rest.partition("TK-END")[0])
        assert box is not None, rest[-2000:]
        return box
    finally:
        shutil.rmtree(base)


def test_a_kill_at_the_job_s_limit() -> None:
    box = box_after("60M")
    levels = {one.level: one for one in box.memory}
    assert (levels["job"].oom, levels["job"].oom_kill) == (1, 1)
    assert levels["step"].oom == 0 and levels["above"].oom == 0
    assert [(one.name, one.rank) for one in box.victims] == [("python3", 1)]
    verdict = judge_end(None, EndView(), 0.0, box)[0]
    assert (verdict.code, verdict.certainty) == ("oom-limit", Certainty.PROVEN)


def test_a_node_that_runs_out() -> None:
    box = box_after("max")
    assert {one.oom for one in box.memory} == {0}
    assert max(one.oom_kill or 0 for one in box.memory) == 1
    verdict = judge_end(None, EndView(), 0.0, box)[0]
    assert (verdict.code, verdict.certainty) == ("oom-node", Certainty.PROVEN)
