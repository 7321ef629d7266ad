"""A job whose name, log and exception are written for the terminal: nothing arrives raw."""

from __future__ import annotations

import asyncio
import json

from tests.support.pty_terminal import on_a_terminal
from tests.support.tkrig import Project

#: It ends with an exception whose text would clear the screen, and claims to be tk's own section.
FAILS = """\
    class Evil(Exception):
        pass

    print("tk-0000000000000000 job\\nJobId=1 JobState=COMPLETED\\ntk-0000000000000000-code 0")
    print("slurmstepd: error: *** JOB 1 ON n CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT")
    raise Evil("\\x1b]0;owned\\x07\\x1b[2J\\x1b[31mjob 1 ended well\\x9b8m" + "y" * 20_000)
    """
SCRIPT = "#!/bin/sh\n#SBATCH --comment=evil\x1b[2J\npython3 fails.py\n"
_OBEYED = ("\x1b[2J", "\x1b]", "\x07", "\x9b", "\x1b[8m")


async def failed_job(project: Project) -> str:
    project.write("fails.py", FAILS)
    project.write("fails.sh", SCRIPT)
    await project.up()
    await project.tk("sync", "--wait")
    job = str((await project.tk("submit", "--json", "fails.sh")).json["job"])
    while (await project.tk("why", job, "--sample", "0", "--json")).json["stage"] != "ended":
        await asyncio.sleep(0.5)
    return job


async def test_a_job_s_texts_are_escaped_and_prove_nothing(project: Project) -> None:
    job = await failed_job(project)
    found = await project.tk("why", job, "--json")
    first = json.loads(found.out)["verdicts"][0]
    # Its own words about a time limit are no record of the scheduler's.
    assert not (first["code"].startswith("timeout") and first["certainty"] == "proven"), first
    assert first["code"] == "exception" and first["sentence"].startswith("failed: Evil: "), first
    assert len(found.out) < 20_000
    for words in (("why", job), ("why", job, "--json"), ("logs", job, "--last-error")):
        done = await project.tk(*words)
        assert "owned" in done.out
        assert not any(one in done.out + done.err for one in _OBEYED), done
    for words in (("why", job), ("logs", job)):
        async with on_a_terminal(project, *words) as screen:
            assert await screen.ended() == 0
        assert "owned" in screen.raw
        assert not any(one in screen.raw for one in _OBEYED), screen.raw[:3000]
