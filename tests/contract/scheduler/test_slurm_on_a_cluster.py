"""The Slurm adapter against a real Slurm: every promise of `Scheduler`, kept."""

from __future__ import annotations

import asyncio
import hashlib
import os
import select
import subprocess
from collections.abc import Iterator
from contextlib import aclosing

import pytest

from tests.contract.scheduler.rig import DEADLINE_S, Cluster, cluster, hold, until
from tunnelkit.errors import SchedulerError
from tunnelkit.lab import LabInfo
from tunnelkit.model import Completed, JobState, JobStatus, ResourceRequest
from tunnelkit.scheduler.base import Command, PendingCause
from tunnelkit.scheduler.detect import DETECT, parse_detect
from tunnelkit.scheduler.job_script import HolderStatus, parse_status, read_status
from tunnelkit.scheduler.poller import Poller
from tunnelkit.scheduler.slurm.adapter import Slurm


@pytest.fixture
def slurm(slurm_lab: LabInfo) -> Iterator[Cluster]:
    with cluster(slurm_lab, Slurm()) as rig:
        yield rig


# --- a job's life ------------------------------------------------------------------------------


def test_submit_run_cancel(slurm: Cluster) -> None:
    request = ResourceRequest(node="node1", gpus=1, cpus=2, time_limit_s=600)
    job_id = slurm.submit("tk-life", request)
    status = slurm.running(job_id)
    assert status.nodes == ("node1",)
    assert status.time_left_s is not None
    assert 500 < status.time_left_s <= 600

    until(lambda: slurm.home("tk-life.st").exists(), "the status file")
    running = parse_status(slurm.run(read_status("~/tk-life.st")).text)
    assert running is not None
    assert running.node == "node1"
    until(lambda: "FROM_PROLOGUE=1" in slurm.home("tk-life.env").read_text(), "the environment")
    environment = slurm.home("tk-life.env").read_text().splitlines()
    assert f"SLURM_JOB_ID={job_id}" in environment
    assert "CUDA_VISIBLE_DEVICES=0" in environment
    assert "SLURM_CPUS_PER_TASK=2" in environment

    signal = ("scancel", "--batch", "--signal=USR1", job_id)
    assert slurm.run(Command(signal)).exit_code == 0
    until(lambda: slurm.home("tk-life.sig").exists(), "USR1 at the agent")
    assert slurm.status(job_id).state is JobState.RUNNING

    ended = slurm.cancel(job_id)
    assert ended.explanation
    until(
        lambda: parse_status(slurm.home("tk-life.st").read_text()) == HolderStatus(exit_code=7),
        "the status file's last word",
    )
    assert slurm.home(f"{job_id}.log").exists()


def test_a_directive_in_the_prologue_changes_nothing(slurm: Cluster) -> None:
    script = "#SBATCH --job-name=other\n" + hold("tk-directive")
    slurm.running(slurm.submit("tk-directive", ResourceRequest(), script))
    assert len(slurm.find("tk-directive")) == 1
    assert slurm.find("other") == []


def test_two_nodes_one_holder_and_a_way_into_the_other(slurm: Cluster) -> None:
    job_id = slurm.submit("tk-two", ResourceRequest(nodes=2, gpus=2, cpus=1, time_limit_s=600))
    status = slurm.running(job_id)
    assert sorted(status.nodes) == ["node1", "node2"]
    until(lambda: slurm.home("tk-two.st").exists(), "the status file")
    running = parse_status(slurm.home("tk-two.st").read_text())
    assert running
    assert running.node == status.nodes[0], "the holder's node stands first"
    argv = ["sh", "-c", "echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES"]
    enter = slurm.scheduler.enter(job_id, status.nodes[1], argv, cpus=1)
    assert slurm.run(Command(tuple(enter))).text.split() == [status.nodes[1], "0,1"]


def test_find_knows_only_unfinished_jobs_of_that_exact_name(slurm: Cluster) -> None:
    assert slurm.find("tk-find") == []
    first = slurm.submit("tk-find", ResourceRequest())
    slurm.submit("tk-find2", ResourceRequest())
    assert [status.job_id for status in slurm.find("tk-find")] == [first]
    # The session asks before it submits; should it ever submit twice, both are told.
    second = slurm.submit("tk-find", ResourceRequest())
    assert [status.job_id for status in slurm.find("tk-find")] == [first, second]
    slurm.cancel(first)
    assert [status.job_id for status in slurm.find("tk-find")] == [second]


def test_odd_names_of_other_jobs_do_not_break_the_table(slurm: Cluster) -> None:
    script = b"#!/bin/sh\nsleep 100\n"
    odd = slurm.run(Command(("sbatch", "--parsable", "-J", "a|b | c", "-o", "/dev/null"), script))
    job_id = odd.text.strip()
    slurm.jobs.append(job_id)
    mine = slurm.submit("tk-odd", ResourceRequest())
    found = slurm.run(slurm.scheduler.query([job_id, mine]))
    statuses = slurm.scheduler.parse_query(found, [job_id, mine])
    assert {status.state for status in statuses.values()} <= {JobState.PENDING, JobState.RUNNING}


# --- what can't be -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "hint"),
    [
        (ResourceRequest(node="nosuch"), "sinfo -N"),
        (ResourceRequest(gpus=99), "no node has"),
        (ResourceRequest(nodes=2, gpus=99), "no node has"),
        (ResourceRequest(partition="nosuch"), "sinfo -s"),
        (ResourceRequest(constraint="nosuch"), "features"),
        (ResourceRequest(mem="9000G"), "less mem"),
        (ResourceRequest(extra=("--gres=nosuch:1",)), "GPUs"),
        (ResourceRequest(extra=("--no-such-option",)), "extra"),
    ],
)
def test_refused_at_once(slurm: Cluster, request_: ResourceRequest, hint: str) -> None:
    with pytest.raises(SchedulerError) as caught:
        slurm.submit("tk-refused", request_)
    assert not caught.value.transient
    assert caught.value.cause
    assert caught.value.hint
    assert hint in caught.value.hint
    assert slurm.find("tk-refused") == [], "Slurm's record of the refusal is no job"


#: Without a doubt, or but for nodes that may come back.
NEVER = (PendingCause.FIX, PendingCause.DOUBT)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (ResourceRequest(time_limit_s=90 * 86400), "time"),
        (ResourceRequest(cpus=99), "no node"),
        (ResourceRequest(nodes=50), "node"),
    ],
)
def test_accepted_but_never_to_start(slurm: Cluster, request_: ResourceRequest, words: str) -> None:
    job_id = slurm.submit("tk-never", request_)
    status = slurm.until(
        job_id,
        lambda s: slurm.scheduler.verdict(s) in NEVER and words in (s.explanation or ""),
        "the verdict",
    )
    assert status.state is JobState.PENDING
    assert slurm.cancel(job_id).state is JobState.ENDED


def test_a_full_node_is_waited_for(slurm: Cluster) -> None:
    full = ResourceRequest(node="node2", gpus=2, cpus=4, time_limit_s=600)
    slurm.running(slurm.submit("tk-full", full))
    job_id = slurm.submit("tk-waits", full)
    status = slurm.until(job_id, lambda s: s.reason in ("Resources", "Priority"), "the reason")
    assert status.state is JobState.PENDING
    assert slurm.scheduler.verdict(status) is PendingCause.WAIT
    assert status.explanation

    def estimate() -> str | None:
        command = slurm.scheduler.estimate(job_id)
        assert command
        return slurm.scheduler.parse_estimate(slurm.run(command))

    until(estimate, "the estimate")
    slurm.cancel(job_id)


def test_a_held_job(slurm: Cluster) -> None:
    job_id = slurm.submit("tk-held", ResourceRequest(extra=("--hold",)))
    status = slurm.until(job_id, lambda s: s.reason == "JobHeldUser", "the reason")
    assert slurm.scheduler.verdict(status) is PendingCause.HELD


def test_a_job_that_never_was_is_unknown(slurm: Cluster) -> None:
    assert slurm.status("99999999").state is JobState.UNKNOWN
    slurm.scheduler.parse_cancel(slurm.run(slurm.scheduler.cancel("99999999")))


def test_no_accounting_means_no_history(slurm: Cluster) -> None:
    command = slurm.scheduler.history("1")
    assert command
    assert slurm.scheduler.parse_history(slurm.run(command)) is JobState.UNKNOWN


def test_a_controller_that_is_away(slurm: Cluster) -> None:
    away = slurm.home("away.conf")
    away.write_text(
        "ClusterName=away\nSlurmctldHost=nohost(127.0.0.1)\nSlurmctldPort=1\n"
        "MessageTimeout=5\nTCPTimeout=1\nNodeName=n1\nPartitionName=p Nodes=n1\n"
    )
    command = slurm.scheduler.query(["1"])
    argv = ("env", f"SLURM_CONF={away}", *command.argv)
    with pytest.raises(SchedulerError) as caught:
        slurm.scheduler.parse_query(slurm.run(Command(argv)), ["1"])
    assert caught.value.transient, caught.value.one_line()
    away.unlink()


# --- the way in --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def held(slurm_lab_module: LabInfo) -> Iterator[tuple[Cluster, str]]:
    """One running job for all tests of `enter`."""
    with cluster(slurm_lab_module, Slurm()) as rig:
        request = ResourceRequest(node="node1", gpus=1, cpus=2, time_limit_s=1200)
        job_id = rig.submit("tk-enter", request)
        rig.running(job_id)
        yield rig, job_id


@pytest.fixture(scope="module")
def slurm_lab_module(lab: LabInfo) -> LabInfo:
    if lab.scheduler != "slurm":
        pytest.skip("Slurm is not installed")
    return lab


def enter(held: tuple[Cluster, str], *argv: str) -> list[str]:
    rig, job_id = held
    return rig.remote_argv(rig.scheduler.enter(job_id, "node1", argv, cpus=2))


def test_enter_echoes_a_megabyte(held: tuple[Cluster, str]) -> None:
    data = os.urandom(1_000_000)
    done = subprocess.run(enter(held, "cat"), input=data, capture_output=True, timeout=60)
    assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(data).digest()
    assert done.returncode == 0
    assert done.stderr == b""


def test_enter_holds_no_byte_back(held: tuple[Cluster, str]) -> None:
    """Slurm by default keeps what follows the last newline until the next one comes."""
    process = subprocess.Popen(
        enter(held, "cat"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    )
    assert process.stdin
    assert process.stdout
    try:
        for message in (
            b"no newline",
            b"\x00\x03\x04\x11\x13\r",
            b"\n\x1a\xff\x7f",
            bytes(range(256)),
        ):
            process.stdin.write(message)
            got = b""
            while len(got) < len(message):
                ready, _, _ = select.select([process.stdout], [], [], DEADLINE_S)
                assert ready, f"only {got!r} came of {message!r}"
                got += os.read(process.stdout.fileno(), 65536)
            assert got == message
        process.stdin.close()
        assert process.stdout.read() == b""
        assert process.wait(DEADLINE_S) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_enter_is_inside_the_job(held: tuple[Cluster, str]) -> None:
    words = ["a b", "it's", "$HOME", "", "*"]
    script = 'for f in 0 1 2; do test -t $f && echo tty $f; done; printf "%s\\n" '
    script += '"$SLURM_JOB_ID" "$SLURMD_NODENAME" "$CUDA_VISIBLE_DEVICES" "$@"; exit 5'
    done = subprocess.run(
        enter(held, "sh", "-c", script, "sh", *words), stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.split("\n")[:-1] == [held[1], "node1", "0", *words]
    assert done.returncode == 5


def test_enter_gives_the_whole_output_of_a_command_that_ends_at_once(
    held: tuple[Cluster, str],
) -> None:
    blob = held[0].home("blob")
    blob.write_bytes(os.urandom(300_001))
    for _ in range(5):
        done = subprocess.run(
            enter(held, "cat", str(blob)), stdin=subprocess.DEVNULL, capture_output=True,
            timeout=60,
        )  # fmt: skip
        assert done.stdout == blob.read_bytes()
    blob.unlink()


def test_enter_twice_at_the_same_time(held: tuple[Cluster, str]) -> None:
    """Without --overlap the second step would hang until the first ends."""
    with subprocess.Popen(
        enter(held, "cat"), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as first:
        assert first.stdin
        second = subprocess.run(
            enter(held, "echo", "in"), stdin=subprocess.DEVNULL, capture_output=True, timeout=60
        )
        assert second.stdout == b"in\n"
        first.stdin.close()


def test_enter_a_job_that_is_over(slurm: Cluster) -> None:
    argv = slurm.scheduler.enter("99999999", "node1", ["true"])
    done = slurm.run(Command(tuple(argv)))
    assert done.exit_code != 0
    assert "nvalid job" in done.error_text


# --- asking for it all -------------------------------------------------------------------------


def test_detect(slurm: Cluster) -> None:
    detected = parse_detect(slurm.run(DETECT))
    assert detected.name == "slurm"
    assert detected.version
    # What was detected can be used by its full path.
    slurm.scheduler = Slurm(detected.bin_dir)
    assert slurm.find("tk-none") == []


async def test_poller_sees_a_job_through(slurm: Cluster) -> None:
    async def run(command: Command) -> Completed:
        return await asyncio.to_thread(slurm.run, command)

    seen: list[JobStatus] = []
    request = ResourceRequest(cpus=1, time_limit_s=600)
    job_id = await asyncio.to_thread(slurm.submit, "tk-poll", request)
    poller = Poller(run, slurm.scheduler)
    async with asyncio.timeout(DEADLINE_S), aclosing(poller.watch(job_id)) as statuses:
        async for status in statuses:
            seen.append(status)
            if status.state is JobState.RUNNING:
                await run(slurm.scheduler.cancel(job_id))
                poller.poke()
    assert seen[-1].state is JobState.ENDED
    assert JobState.RUNNING in {status.state for status in seen}
