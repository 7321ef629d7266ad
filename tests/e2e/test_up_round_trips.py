"""`tk up` asks the scheduler in one session of the login host: each one costs two round trips."""

from __future__ import annotations

from collections import Counter

from tests.support.login_rig import LoginHost
from tests.support.scheduler_rig import Programs
from tests.support.scheduler_rig import host as host
from tests.support.scheduler_rig import programs as programs
from tests.support.scheduler_rig import project as project
from tests.support.tkrig import Project


async def test_find_and_query_share_a_session(
    project: Project, host: LoginHost, programs: Programs
) -> None:
    asked = host.home / "asked"
    # sshd makes each of its sessions the leader of a process session.
    for name in ("squeue", "scontrol", "sbatch"):
        programs.replace(name, f'echo {name} $(ps -o sid= -p $$) >>{asked}\nexec "$REAL" "$@"')
    await project.up("node1")
    queries = Counter(line for line in asked.read_text().splitlines() if "squeue" in line)
    # The search for a job, and the queries until the new one runs.
    assert max(queries.values()) >= 2, asked.read_text()
