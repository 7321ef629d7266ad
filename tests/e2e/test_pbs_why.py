# ruff: noqa: F811 - fixtures are imported
"""`tk why` on PBS and on Torque: a job that waits, one that never runs, held ones, ended ones."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import Any

import pytest

from tests.e2e.test_pbs import pbs_lab, project, server  # noqa: F401 - fixtures
from tests.support.pbs_standin.rig import StandIn
from tests.support.tkrig import Project, eventually
from tunnelkit.errors import ExitCode

pytestmark = pytest.mark.slow

FULL_NODE = ("-l", "select=1:ncpus=4:host=node1", "-l", "walltime=600")
ON_DIALECT = {"pbs": "select=1:ncpus=2", "torque": "nodes=1:ppn=2"}


async def qsub(project: Project, *words: str, script: str = "sleep 600\n") -> str:
    """Submit a job as a user would; its id."""
    process = await asyncio.create_subprocess_exec(
        *project.on_login("qsub", *words),
        cwd=project.lab.home,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate(script.encode())
    return out.decode().strip()


async def why(project: Project, *words: str, code: int = 0) -> dict[str, Any]:
    """The diagnosis; every word of its sentences is also printed for people."""
    diagnosis: dict[str, Any] = (await project.tk("why", *words, "--json", code=code)).json
    text = (await project.tk("why", *words, code=code)).out
    for one in diagnosis["verdicts"]:
        assert one["sentence"].removeprefix("failed: ") in text
        assert one["certainty"] != "likely" or "most likely" in text
    return diagnosis


async def told(project: Project, *words: str) -> dict[str, Any]:
    """The diagnosis."""
    diagnosis: dict[str, Any] = (await project.tk("why", *words, "--json")).json
    return diagnosis


async def commented(server: StandIn, job: str) -> None:
    await eventually(lambda: server.jobs()[job].get("comment"), "the scheduler has looked")


@pytest.mark.why("waiting")
async def test_a_job_that_waits_for_a_full_node(project: Project, server: StandIn) -> None:
    first = await qsub(project, *FULL_NODE)
    await eventually(lambda: server.jobs()[first]["job_state"] == "R", "the first runs")
    job = await qsub(project, *FULL_NODE)
    await commented(server, job)
    # Without a name it is the newest that waits or runs.
    diagnosis = await why(project)
    [found] = diagnosis["verdicts"]
    assert (diagnosis["job_id"], diagnosis["stage"], diagnosis["not_asked"]) == (job, "waiting", [])
    assert (found["code"], found["actor"]) == ("busy", "nobody")
    told = [one["text"] for one in found["because"]]
    assert any("Not Running: Insufficient amount of resource" in one for one in told)
    assert any("node1 2 GPUs, 0 CPUs" in one for one in told), told


@pytest.mark.why("waiting")
async def test_a_job_that_can_never_run(project: Project, server: StandIn) -> None:
    job = await qsub(project, "-l", "select=1:ngpus=9")
    await commented(server, job)
    number = job.partition(".")[0]
    diagnosis = await why(project, number, "--check", code=int(ExitCode.DIAGNOSED))
    [found] = diagnosis["verdicts"]
    assert (found["code"], found["certainty"], found["actor"]) == ("never", "proven", "you")
    assert "9 asked for, 2 free of 2" in found["sentence"]
    assert found["next_steps"][0]["command"] == f"qdel {job}"


@pytest.mark.why("waiting")
async def test_nodes_that_are_offline(project: Project, server: StandIn) -> None:
    server.reset(nodes=["node2"])
    job = await qsub(project, "-l", "select=1:ncpus=1:host=node1")
    await commented(server, job)
    [found] = (await why(project, job))["verdicts"]
    assert (found["code"], found["actor"]) == ("nodes-down", "administrator")
    assert any("fan replaced on Friday" in one["text"] for one in found["because"])


@pytest.mark.why("waiting")
@pytest.mark.parametrize("dialect", ["pbs", "torque"])
async def test_a_held_job(project: Project, server: StandIn, dialect: str) -> None:
    server.reset(dialect=dialect)
    job = await qsub(project, "-h", "-l", ON_DIALECT[dialect])
    [found] = (await why(project, job))["verdicts"]
    assert found["code"] == "held-you"
    assert found["next_steps"][0]["command"] == f"qrls {job}"


@pytest.mark.why("waiting")
@pytest.mark.parametrize("what", ["started", "scheduling"])
async def test_what_is_switched_off(project: Project, server: StandIn, what: str) -> None:
    server.reset(**{what: False})
    job = await qsub(project, "-l", "select=1:ngpus=9")
    [found] = (await why(project, job))["verdicts"][:1]
    assert (found["code"], found["actor"]) == ("partition-down", "administrator")
    assert f"({what} = False)" in found["sentence"]


@pytest.mark.why("ended")
async def test_a_job_that_ran_into_its_time_limit(project: Project, server: StandIn) -> None:
    job = await qsub(project, "-l", "walltime=1", "-N", "short", "-o", "short.out",
                     script="echo step 7\nsleep 600\n")  # fmt: skip
    await eventually(lambda: server.jobs()[job]["job_state"] == "F", "its end")
    diagnosis = await why(project)
    assert (diagnosis["job_id"], diagnosis["stage"]) == (job, "ended")
    found = diagnosis["verdicts"][0]
    assert found["code"].startswith("timeout")
    assert any("-29" in one["text"] for one in found["because"])
    assert diagnosis["not_asked"] == [], "its log was found"


@pytest.mark.why("ended")
@pytest.mark.parametrize("dialect", ["pbs", "torque"])
async def test_a_job_that_was_deleted(project: Project, server: StandIn, dialect: str) -> None:
    server.reset(dialect=dialect)
    job = await qsub(project, "-l", ON_DIALECT[dialect])
    await eventually(lambda: server.jobs()[job]["job_state"] == "R", "it runs")
    server.qdel(job, "operator@login")
    await eventually(lambda: server.jobs()[job]["job_state"] in "FC", "its end")
    found = (await why(project, job))["verdicts"][0]
    if dialect == "pbs":
        assert found["code"] == "cancelled" and "operator@login" in found["sentence"]
    else:
        # Torque keeps no word of who deleted it: the signal is all there is.
        assert found["code"] in ("killed-unknown", "terminated")
        assert "271" in str(found) or "TERM" in str(found)


@pytest.mark.why("ended")
async def test_a_server_without_a_history(project: Project, server: StandIn) -> None:
    server.reset(history=False)
    job = await qsub(project, *FULL_NODE)
    await eventually(lambda: server.jobs()[job]["job_state"] == "R", "it runs")
    assert (await why(project, job))["stage"] == "running"
    server.qdel(job)
    await eventually(lambda: job not in server.jobs(), "the server forgets it")
    gone = await why(project, job)
    assert gone["stage"] == "ended" and gone["verdicts"][0]["code"] in ("exit-unknown", "no-record")


FAILS = """\
echo epoch 1
cat <<'end'
Traceback (most recent call last):
  File "/h/train.py", line 88, in collate
    y = row["label"]
KeyError: 'label'
end
"""
WAITS = "until [ -e go ]; do sleep 0.1; done\n"


@pytest.mark.why("ended")
async def test_a_forgotten_job_is_judged_by_its_log(project: Project, server: StandIn) -> None:
    """The server says "Unknown Job Id": the log that tk saw, PBS's usual name, or the user's."""
    server.reset(history=False)
    home, asked = project.lab.home, ("-l", "select=1:ncpus=1")
    (home / "go").unlink(missing_ok=True)
    seen = await qsub(project, *asked, "-o", "seen.out", "-j", "oe", script=WAITS + FAILS)
    usual = await qsub(project, *asked, "-N", "usual", script=WAITS + FAILS + "exit 1\n")
    for job in (seen, usual):
        await eventually(lambda job=job: server.jobs()[job]["job_state"] == "R", "it runs")
    assert (await told(project, seen, "--sample", "0"))["stage"] == "running"
    (home / "go").touch()
    await eventually(lambda: not server.jobs(), "the server forgets both")
    number = usual.partition(".")[0]
    assert (home / f"usual.o{number}").exists()
    for job in (seen, number):
        found = await told(project, job)
        assert found["stage"] == "ended"
        [verdict] = found["verdicts"]
        assert (verdict["code"], verdict["certainty"]) == ("exception", "likely"), found
        assert "KeyError: 'label' at train.py:88 in collate" in verdict["sentence"]
    (home / "well.log").write_text("epoch 1\nepoch 2\n")
    [verdict] = (await told(project, "777", "--log", "well.log"))["verdicts"]
    assert (verdict["code"], verdict["certainty"]) == ("no-record", "unknown")
    assert any("epoch 2" in one["text"] for one in verdict["because"])


@pytest.mark.why("ended")
async def test_a_forgotten_job_is_judged_by_its_black_box(
    project: Project, server: StandIn
) -> None:
    server.reset(history=False)
    status = await project.up("node1")
    job = status["job"]["id"]
    boxes = project.lab.home / ".cache" / "tunnelkit" / "boxes"
    box = boxes / f"{job.partition('.')[0]}.0.jsonl"

    def has(kind: str) -> bool:
        lines = box.read_text().splitlines() if box.exists() else []
        return any(json.loads(line)["kind"] == kind for line in lines)

    await eventually(lambda: has("head"), "the box's first record")
    os.kill(status["agent"]["pid"], signal.SIGKILL)
    await eventually(lambda: has("end"), "the box's last record")
    await eventually(lambda: job not in server.jobs(), "the server forgets it")
    project.forget_killed_agents()
    [verdict] = (await told(project, job))["verdicts"]
    assert (verdict["code"], verdict["certainty"]) == ("killed-unknown", "unknown"), verdict
    assert "tk's agent was killed (KILL)" in verdict["sentence"]
    assert any("exit code 137" in one["text"] for one in verdict["because"])


async def test_a_server_that_is_away(project: Project, server: StandIn) -> None:
    job = await qsub(project, *FULL_NODE)
    server.set(down=True)
    diagnosis = await why(project, job)
    assert any("cannot connect to server" in one for one in diagnosis["not_asked"])
    done = await project.tk("why", code=None)
    assert done.code != 0 and "PBS can't be asked for your jobs" in done.err


async def test_through_a_session(project: Project, server: StandIn) -> None:
    await project.up("node1")
    assert (await why(project))["stage"] == "running"
    await project.tk("down")
