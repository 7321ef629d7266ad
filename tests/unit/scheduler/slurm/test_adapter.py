"""squeue's answers, read; and what each reason means."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.errors import SchedulerError, UsageError
from tunnelkit.model import Completed, JobState
from tunnelkit.scheduler.base import PendingCause
from tunnelkit.scheduler.slurm.adapter import Slurm
from tunnelkit.scheduler.slurm.states import STATES, judge, state_of

slurm = Slurm()

#: As a real 22.05 printed it.
TABLE = b"""\
2|FAILED|BadConstraints||n/a|2026-11-21T09:17:48|2026-11-21T09:17:48|1-00:00:00|2|cpu|tk-a
6|PENDING|PartitionTimeLimit||n/a|N/A|N/A|9-00:00:00|6|cpu|tk-a
10|PENDING|Resources||n/a|2026-11-21T11:17:49|2026-11-22T11:17:49|1-00:00:00|10|cpu|tk-b|odd|name
15|PENDING|ReqNodeNotAvail, UnavailableNodes:ecn2||n/a|N/A|N/A|1-00:00:00|15|cpu|tk-c
1|RUNNING|None|ecn[1-2]|ecn2|2026-11-21T09:17:49|2026-11-21T11:17:49|1:59:57|1|cpu|tk-a
"""


def done(stdout: bytes = b"", stderr: bytes = b"", code: int = 0) -> Completed:
    return Completed(code, stdout, stderr)


def test_one_command_asks_for_all_jobs() -> None:
    argv = slurm.query(["1", "22_3"]).argv
    assert argv[argv.index("-j") + 1] == "1,22_3"
    assert "--me" in argv


def test_a_filter_in_the_persons_environment_hides_nothing() -> None:
    assert slurm.find("tk-a").argv[:3] == ("env", "-u", "SQUEUE_PARTITION")


def test_a_job_with_a_row_for_each_partition_is_one_job() -> None:
    """As with SQUEUE_PRIORITY in the user's profile: tk took the job for its own second one."""
    assert {"SQUEUE_PRIORITY", "SQUEUE_SIBLING"} <= set(slurm.find("tk-a").argv)
    row = b"6|PENDING|Priority||n/a|N/A|N/A|9:00|6|%s|tk-a\n"
    (job,) = slurm.parse_find(done(row % b"cpu" + row % b"gpu"), "tk-a")
    assert job.job_id == "6"


def test_statuses() -> None:
    found = slurm.parse_query(done(TABLE), ["1", "2", "6", "10", "15", "99"])
    running = found["1"]
    assert running.state is JobState.RUNNING
    assert running.nodes == ("ecn2", "ecn1"), "the holder's node stands first"
    assert running.time_left_s == 7197
    assert running.reason is None
    assert found["2"].state is JobState.ENDED
    assert found["10"].start_estimate == "2026-11-21T11:17:49"
    assert found["10"].explanation == "waiting for the resources to become free"
    assert "ecn2" in (found["15"].explanation or "")
    assert found["99"].state is JobState.UNKNOWN
    assert found["99"].native_state == ""


def test_a_forgotten_job_is_unknown_and_never_ended() -> None:
    gone = done(stderr=b"slurm_load_jobs error: Invalid job id specified\n", code=1)
    assert slurm.parse_query(gone, ["7"])["7"].state is JobState.UNKNOWN
    assert slurm.parse_find(gone, "tk-a") == []


@pytest.mark.parametrize(
    "stderr",
    [
        b"slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n",
        b"slurm_load_jobs error: Socket timed out on send/recv operation\n",
    ],
)
def test_a_controller_that_is_away_is_a_transient_error(stderr: bytes) -> None:
    with pytest.raises(SchedulerError) as caught:
        slurm.parse_query(done(stderr=stderr, code=1), ["7"])
    assert caught.value.transient


def test_find_takes_the_exact_name_and_unfinished_jobs_only() -> None:
    assert [status.job_id for status in slurm.parse_find(done(TABLE), "tk-a")] == ["1", "6"]
    assert [status.job_id for status in slurm.parse_find(done(TABLE), "tk-b|odd|name")] == ["10"]


def test_banners_and_cluster_headers_are_no_jobs() -> None:
    text = b"CLUSTER: big\n** welcome | to | a | site | with | many | bars | here | **\n" + TABLE
    assert len(slurm.parse_find(done(text), "tk-a")) == 2


def test_estimate() -> None:
    assert slurm.parse_estimate(done(b"10|2026-11-21T11:17:49\n")) == "2026-11-21T11:17:49"
    assert slurm.parse_estimate(done(b"10|N/A\n")) is None
    assert slurm.parse_estimate(done(b"")) is None
    assert slurm.parse_estimate(done(code=1)) is None


def test_cancelling_what_is_over_is_no_error() -> None:
    slurm.parse_cancel(done())
    slurm.parse_cancel(
        done(stderr=b"scancel: error: Kill job error on job id 9: Invalid job id specified", code=1)
    )
    with pytest.raises(SchedulerError):
        slurm.parse_cancel(done(stderr=b"scancel: error: Access/permission denied", code=1))


@pytest.mark.parametrize("job_id", ["", "-u", "1;ls", "1 2", "1\n", "all", "1,2", "é1", "٣"])
def test_only_job_ids_reach_a_command(job_id: str) -> None:
    for build in (slurm.cancel, slurm.estimate, slurm.history, lambda j: slurm.query([j])):
        with pytest.raises(UsageError):
            build(job_id)


def test_history() -> None:
    assert slurm.parse_history(done(b"CANCELLED by 1000\n")) is JobState.ENDED
    assert slurm.parse_history(done(b"RUNNING\n")) is JobState.RUNNING
    assert slurm.parse_history(done(b"RUNNING late?\nTIMEOUT\n")) is JobState.ENDED, "a greeting"
    assert slurm.parse_history(done(b"Welcome, dear user\n")) is JobState.UNKNOWN
    off = done(stderr=b"Slurm accounting storage is disabled\n", code=1)
    assert slurm.parse_history(off) is JobState.UNKNOWN


def test_enter_names_the_node_and_repeats_the_cpus() -> None:
    argv = slurm.enter("7", "node4", ["python3", "-c", "a b"], cpus=2)
    assert argv[:7] == ["srun", "--jobid=7", "--overlap", "--nodes=1", "--ntasks=1",
                        "--nodelist=node4", "--cpus-per-task=2"]  # fmt: skip
    assert argv[-3:] == ["python3", "-c", "a b"]
    assert "--job-name=tk-step" in argv
    with pytest.raises(UsageError):
        slurm.enter("7", "--pty", ["sh"])


@pytest.mark.parametrize(
    ("reason", "verdict"),
    [
        (None, PendingCause.WAIT), ("None", PendingCause.WAIT), ("Resources", PendingCause.WAIT),
        ("(Priority)", PendingCause.WAIT), ("Dependency", PendingCause.WAIT),
        ("BeginTime", PendingCause.WAIT),
        ("Licenses", PendingCause.WAIT), ("Reservation", PendingCause.WAIT),
        ("SomethingNewOf2031", PendingCause.WAIT),
        ("QOSMaxJobsPerUserLimit", PendingCause.QUOTA), ("AssocGrpGRES", PendingCause.QUOTA),
        ("QOSGrpCpuLimit", PendingCause.QUOTA), ("MaxGRESPerAccount", PendingCause.QUOTA),
        ("AssocMaxJobsLimit", PendingCause.QUOTA),
        ("QOSGrpCPURunMinutesLimit", PendingCause.QUOTA), ("JobArrayTaskLimit", PendingCause.QUOTA),
        # The end of other jobs frees no budget.
        ("QOSGrpCPUMinutesLimit", PendingCause.HELD), ("AssocGrpWallLimit", PendingCause.HELD),
        ("PartitionConfig", PendingCause.FIX), ("PartitionTimeLimit", PendingCause.FIX),
        # It can also mean drained nodes, so the job must not be cancelled.
        ("PartitionNodeLimit", PendingCause.HELD), ("BadConstraints", PendingCause.FIX),
        ("InvalidQOS", PendingCause.FIX), ("InvalidAccount", PendingCause.FIX),
        ("QOSMaxGRESPerJob", PendingCause.FIX),
        ("AssocMaxWallDurationPerJobLimit", PendingCause.FIX),
        ("QOSMaxWallDurationPerJobLimit", PendingCause.FIX), ("QOSMinGRES", PendingCause.FIX),
        ("DependencyNeverSatisfied", PendingCause.FIX),
        ("ReservationInvalid", PendingCause.FIX), ("ReservationDeleted", PendingCause.FIX),
        # Slurm's word for limits that it does not name; they may give way.
        ("AccountingPolicy", PendingCause.QUOTA),
        ("ReqNodeNotAvail, Reserved for maintenance", PendingCause.WAIT),
        ("JobHeldUser", PendingCause.HELD), ("JobHeldAdmin", PendingCause.HELD),
        ("launch_failed_requeued_held", PendingCause.HELD), ("PartitionDown", PendingCause.HELD),
        ("ReqNodeNotAvail, UnavailableNodes:n1", PendingCause.HELD),
        ("Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority "
         "partitions", PendingCause.HELD),
        ("Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved", PendingCause.HELD),
    ],
)  # fmt: skip
def test_reasons(reason: str | None, verdict: PendingCause) -> None:
    found, words = judge(reason)
    assert found is verdict
    assert words and "\n" not in words
    assert slurm.explain(reason) == words


def test_the_words_that_misled() -> None:
    budget = judge("AssocGrpCPUMinutesLimit")[1]
    assert "budget" in budget and "other jobs does not free it" in budget
    begin = judge("BeginTime")[1]
    assert "preempted" in begin and "requeued" in begin
    maintenance = judge("ReqNodeNotAvail, Reserved for maintenance")[1]
    assert "maintenance" in maintenance and "shorter --time" in maintenance
    assert "begin" not in judge("ReservationInvalid")[1]
    assert "drained" in judge("PartitionNodeLimit")[1]


def test_commands_in_words_name_the_job() -> None:
    line = b"7|PENDING|JobHeldUser||n/a|N/A|N/A|1:00|7|cpu|x"
    explanation = slurm.parse_query(done(line), ["7"])["7"].explanation
    assert explanation and "scontrol release 7 " in explanation


def test_every_native_state_is_known_and_an_unknown_one_does_not_end_a_job() -> None:
    for native, (state, _) in STATES.items():
        line = f"1|{native}|None||n/a|N/A|N/A|NOT_SET|1|cpu|x".encode()
        assert slurm.parse_query(done(line), ["1"])["1"].state is state
    status = slurm.parse_query(done(b"1|FROBBED|None||n/a|N/A|N/A|1:00|1|cpu|x"), ["1"])["1"]
    assert status.state is JobState.UNKNOWN
    assert status.native_state == "FROBBED"


def test_an_arrays_element_is_known_by_both_ids_and_entered_by_its_own_number() -> None:
    """`srun --jobid=1000_3` is refused by 22.05: Invalid numeric value."""
    line = b"1000_3|RUNNING|None|n1|n1|S|E|1:00|1003|cpu|train\n"
    for asked in ("1000_3", "1003"):
        status = slurm.parse_query(done(line), [asked])[asked]
        assert (status.job_id, status.step_id) == (asked, "1003")
    assert "--jobid=1003" in slurm.enter(status.step_id, "n1", ["true"])
    [found] = slurm.parse_find(done(line), "train")
    assert (found.job_id, found.step_id) == ("1000_3", "1003")
    odd = slurm.parse_query(done(b"5|RUNNING|None|n1|n1|S|E|1:00|-x|cpu|t\n"), ["5"])["5"]
    assert odd.step_id == "5"


def test_a_waiting_array_and_a_heterogeneous_job_are_known_by_their_number() -> None:
    rows = b"""\
8_[3-9%2]|PENDING|Resources||n/a|N/A|N/A|1:00|8|cpu|a
9_[1,3,5,...]|PENDING|Resources||n/a|N/A|N/A|1:00|9|cpu|a
21+0|RUNNING|None|n1|n1|S|E|1:00|21|cpu|h
21+1|RUNNING|None|n2|n2|S|E|1:00|22|cpu|h
"""
    found = slurm.parse_query(done(rows), ["8", "9", "21", "22"])
    assert [found[one].state.value for one in ("8", "9", "21", "22")] == [
        "pending", "pending", "running", "running",
    ]  # fmt: skip
    assert (found["21"].nodes, found["22"].nodes) == (("n1",), ("n2",))


@pytest.mark.parametrize(
    ("reason", "partitions", "cause"),
    [
        ("PartitionTimeLimit", "long,short", PendingCause.DOUBT),
        ("InvalidQOS", "cpu", PendingCause.DOUBT),
        ("InvalidAccount", "cpu", PendingCause.DOUBT),
        ("QOSNotAllowed", "long,short", PendingCause.DOUBT),
        ("QOSNotAllowed", "cpu", PendingCause.FIX),
        ("BadConstraints", "cpu", PendingCause.DOUBT),
        ("PartitionConfig", "cpu", PendingCause.DOUBT),
        ("PartitionTimeLimit", "cpu", PendingCause.FIX),
        ("DependencyNeverSatisfied", "long,short", PendingCause.FIX),
        ("Resources", "long,short", PendingCause.WAIT),
    ],
)
def test_a_reason_that_may_be_of_one_partition_or_of_this_moment_needs_a_proof(
    reason: str, partitions: str, cause: PendingCause
) -> None:
    row = f"7|PENDING|{reason}||n/a|N/A|N/A|1:00|7|{partitions}|x".encode()
    assert slurm.verdict(slurm.parse_query(done(row), ["7"])["7"]) is cause


@given(st.binary(max_size=300))
def test_any_answer_parses_or_is_a_scheduler_error(stdout: bytes) -> None:
    try:
        slurm.parse_query(done(stdout), ["1"])
        slurm.parse_find(done(stdout), "x")
    except SchedulerError:
        pass


@given(st.text(alphabet=st.characters(exclude_characters="\r\n", codec="utf-8"), max_size=40))
def test_any_job_name_leaves_the_other_fields_alone(name: str) -> None:
    if len(name.splitlines()) > 1:
        return
    line = f"5|RUNNING|None|n1|n1|S|E|1:00|5|cpu|{name}".encode()
    assert slurm.parse_query(done(line), ["5"])["5"].nodes == ("n1",)


@given(st.text(alphabet=st.characters(exclude_characters="\r\n", codec="utf-8"), max_size=40))
def test_any_reason_leaves_the_other_fields_alone(reason: str) -> None:
    if len(f"x{reason}x".splitlines()) > 1:
        return
    time = "2026-11-21T09:17:49"
    line = f"5|RUNNING|{reason}|n1|n1|{time}|N/A|1:00|5|cpu|tk-x".encode()
    (status,) = slurm.parse_find(done(line), "tk-x")
    assert (status.nodes, status.time_left_s) == (("n1",), 60)
    assert status.reason in (reason, None)


COMPLETING = b"7|COMPLETING|None|n1|n1|S|E|0:10|7|cpu|tk-x\n"


def test_a_job_that_is_being_cleared_away_is_over_unless_it_may_come_back() -> None:
    status = Slurm().parse_query(Completed(0, COMPLETING, b""), ["7"])["7"]
    assert (status.state, status.ending) == (JobState.ENDED, True)
    back = Slurm(requeues=True)
    status = back.parse_query(Completed(0, COMPLETING, b""), ["7"])["7"]
    assert (status.state, status.ending) == (JobState.PENDING, True)
    assert status.explanation and "may go back into the queue" in status.explanation
    # So a successor finds it, and submits no second one.
    assert [one.job_id for one in back.parse_find(Completed(0, COMPLETING, b""), "tk-x")] == ["7"]
    assert Slurm().parse_find(Completed(0, COMPLETING, b""), "tk-x") == []


@pytest.mark.parametrize(
    ("answer", "uid"),
    [
        (Completed(0, b"CANCELLED by 1000\n", b""), 1000),
        (Completed(0, b"Welcome, dear user\nCANCELLED by 1000\n", b""), 1000),
        (Completed(0, b"CANCELLED\n", b""), None),
        (Completed(0, b"TIMEOUT\n", b""), None),
        (Completed(1, b"", b"Slurm accounting storage is disabled\n"), None),
    ],
)
def test_who_cancelled(answer: Completed, uid: int | None) -> None:
    assert Slurm().parse_canceller(answer) == uid


def test_a_step_has_all_that_the_job_has_on_the_node() -> None:
    argv = Slurm("/opt/bin").step("7", "node2", ["sh", "x"])
    assert argv[0] == "/opt/bin/srun" and argv[-3:] == ["--", "sh", "x"]
    assert {"--jobid=7", "--overlap", "--nodelist=node2", "--mem=0"} <= set(argv)
    assert not [word for word in argv if "cpus" in word or "gres" in word]
    with pytest.raises(UsageError):
        Slurm().step("7;rm", "node2", [])
    with pytest.raises(UsageError):
        Slurm().step("7", "-oX", [])


@pytest.mark.parametrize(
    ("native", "words"),
    [
        ("TIMEOUT", "time limit; `tk up --time`"),
        ("NODE_FAIL", "a node of the job failed; `tk up` asks for another"),
        ("OUT_OF_MEMORY", "`tk up --mem`"),
        ("PREEMPTED", "`tk up --requeue`"),
    ],
)
def test_an_end_says_what_to_do(native: str, words: str) -> None:
    explanation = state_of(native)[1]
    assert explanation is not None and words in explanation
