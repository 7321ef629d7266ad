"""The stand-in's programs: `server PROGRAM STATE_DIR ARGS...`."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.pbs_standin.mom import mom
from tests.support.pbs_standin.state import (
    FINISHED,
    UNKNOWN_JOB,
    UNKNOWN_QUEUE,
    State,
    fail,
    user,
)
from tests.support.pbs_standin.submit import qsub
from tests.support.pbs_standin.tell import pbsnodes, qselect, qstat


def qdel(state: State, ids: list[str]) -> None:
    code, errors = 0, []
    with state.locked():
        for job_id in ids:
            full, job = f"{job_id.partition('.')[0]}.login", state.job(job_id)
            if job is None:
                errors.append(f"qdel: Unknown Job Id {full}")
                code = UNKNOWN_JOB
            elif job["job_state"] == "F":
                errors.append(f"qdel: Job has finished {full}")
                code = FINISHED
            elif job["job_state"] == "C":
                errors.append(
                    "qdel: Request invalid for state of job MSG=invalid state for job - "
                    f"COMPLETE {full}"
                )
                code = UNKNOWN_QUEUE
            else:
                state.delete(job_id, f"{user()}@login")
    fail(code, *errors)


def main() -> None:
    program, root, *argv = sys.argv[1:]
    state = State(Path(root))
    if program != "mom" and state.config["down"] and argv != ["--version"]:
        fail(111, "Connection refused", f"{program}: cannot connect to server login (errno=111)")
    commands = {"qsub": qsub, "qstat": qstat, "qselect": qselect, "qdel": qdel,
                "pbsnodes": pbsnodes, "mom": mom}  # fmt: skip
    commands[program](state, argv)


if __name__ == "__main__":
    main()
