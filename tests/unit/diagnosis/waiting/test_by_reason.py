"""Verdicts where Slurm's reason alone decides."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.slurm_reasons import SENTENCES, words
from tests.unit.diagnosis.waiting.reason_cases import JOB, NOW_S, commands, judged
from tunnelkit.diagnosis.codes.registry import CODES
from tunnelkit.diagnosis.evidence.cluster import (
    ClusterView,
    Limit,
    QueuedJob,
    RunningJob,
    Window,
)
from tunnelkit.diagnosis.evidence.job import NodeNeed
from tunnelkit.diagnosis.verdict import Certainty
from tunnelkit.diagnosis.waiting.by_reason import judge_by_word, judge_reason
from tunnelkit.diagnosis.waiting.reasons.time_words import span

# --- which decide -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reason",
    [
        "Priority", "Resources", "PartitionNodeLimit", "PartitionConfig", "PartitionTimeLimit",
        "BadConstraints", "NodeDown", "ReqNodeNotAvail", "ReqNodeNotAvail,_UnavailableNodes:n1",
        "ReqNodeNotAvail,_Reserved_for_maintenance",
        "Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs",
        "None", "(null)", "SomethingNewOf2031",
        "Not Running: Insufficient amount of resource: ngpus",
    ],
)  # fmt: skip
def test_nodes_decide_so_the_reason_does_not(reason: str) -> None:
    assert judge_reason(replace(JOB, reason=reason), ClusterView(), NOW_S) is None
    assert judge_by_word(replace(JOB, reason=reason)).certainty is not Certainty.PROVEN


@pytest.mark.parametrize("reason", [*words(), *SENTENCES])
def test_every_reason_is_judged_or_left_to_the_nodes(reason: str) -> None:
    verdict = judge_reason(replace(JOB, reason=reason), ClusterView(), NOW_S)
    verdict = verdict or judge_by_word(replace(JOB, reason=reason))
    assert verdict.code in CODES
    assert "JOBID" not in verdict.sentence
    assert verdict.sentence.startswith(("waits", "can never", "is ", "will not", "needs"))


# --- dependencies -------------------------------------------------------------------------------


def test_dependencies_and_what_their_jobs_do() -> None:
    cluster = ClusterView(
        queue=(QueuedJob("18_3", "alice", 5, "JobHeldUser"),),
        running=(RunningJob("19", "alice", ("n1",), NOW_S + 600),),
    )
    text = "afterok:18_*(unfulfilled),afterany:19(unfulfilled)"
    found = judged("Dependency", cluster, dependency=text)
    assert (found.code, found.certainty) == ("dependency", Certainty.PROVEN)
    assert found.sentence == "waits for all of the jobs 18, 19"
    said = [one.text for one in found.because]
    assert "18 waits itself (JobHeldUser)" in said
    assert "19 runs, for 10 min at most" in said
    assert commands(found) == ["scontrol update jobid=7 dependency="]


@pytest.mark.parametrize(
    ("reason", "text", "code", "sentence"),
    [
        ("Dependency", "afterok:18(unfulfilled)", "dependency",
         "waits for job 18 to end with exit code 0"),
        ("Dependency", "afterok:18(failed)", "dependency-never", "job 18 to end with exit code 0"),
        ("Dependency", "afterok:18(failed),afterok:19(unfulfilled)", "dependency-never", "job 18"),
        ("Dependency", "afterok:18(failed)?afterok:19(unfulfilled)", "dependency",
         "waits for job 19"),
        ("Dependency", "afterok:18(failed)?afterok:19(failed)", "dependency-never", "job 18"),
        ("DependencyNeverSatisfied", "afternotok:18(failed)", "dependency-never", "to fail"),
        ("DependencyNeverSatisfied", "", "dependency-never", "the job it depends on"),
        ("Dependency", "singleton(unfulfilled)", "dependency", "your jobs of the same name"),
        ("Dependency", "", "dependency", "another job"),
        ("Dependency", "aftercorr:18_*(unfulfilled)", "dependency", "job 18"),
    ],
)  # fmt: skip
def test_dependencies(reason: str, text: str, code: str, sentence: str) -> None:
    found = judged(reason, dependency=text)
    assert found.code == code
    assert sentence in found.sentence
    if code == "dependency-never":
        assert "scancel 7" in commands(found) and found.sentence.startswith("can never start")


# --- holds, begin, requeue ----------------------------------------------------------------------


def test_holds() -> None:
    assert commands(judged("JobHeldUser")) == ["scontrol release 7"]
    assert judged("JobHeldAdmin").code == "held-admin"
    assert commands(judged("JobHeldAdmin")) == [""]
    again = judged("job_requeued_in_held_state", restarts=1)
    assert again.code == "held-you" and "after it ran before" in again.sentence
    failed = judged("launch_failed_requeued_held", restarts=1)
    assert failed.code == "launch-failed"
    assert commands(failed)[-2:] == [
        "scontrol update jobid=7 excnodelist=NODE",
        "scontrol release 7",
    ]


def test_begin_and_requeued() -> None:
    later = judged("BeginTime", eligible_s=NOW_S + 3600)
    assert (later.code, later.certainty) == ("begin", Certainty.PROVEN)
    assert "in 1 h" in later.sentence
    assert commands(later) == ["scontrol update jobid=7 starttime=now"]
    back = judged("BeginTime", eligible_s=NOW_S + 90, restarts=2, stdout_path="/home/a/o.log")
    assert (back.code, back.certainty) == ("requeued", Certainty.PROVEN)
    assert "preempted" in back.sentence and "1 min from now" in back.sentence
    assert any(one.text == "Slurm restarted it 2 times" for one in back.because)
    assert commands(back) == ["tail -n 3 /home/a/o.log"]
    cron = judged("BeginTime", eligible_s=NOW_S + 3600, restarts=57, repeats=True)
    assert (cron.code, cron.certainty) == ("begin", Certainty.PROVEN)
    assert cron.sentence == "waits for its next time, as its crontab says, in 1 h"
    assert commands(cron) == ["scrontab -l"]
    # A path that a shell would read otherwise is not pasted.
    assert commands(judged("BeginTime", restarts=1, stdout_path="/a; rm -rf b")) == [""]
    assert judged("BeginTime").certainty is Certainty.LIKELY
    assert judged("OutOfMemory").certainty is Certainty.LIKELY
    assert judged("OutOfMemory", restarts=1).sentence.endswith("was killed for memory")


def test_reservations() -> None:
    window = Window("course", NOW_S + 7200, NOW_S + 9000, ("n1",))
    cluster = ClusterView(windows=(window,))
    waits = judged("Reservation", cluster, reservation="course")
    assert waits.code == "reservation"
    assert waits.sentence == "waits for reservation course to begin, in 2 h"
    began = ClusterView(windows=(replace(window, start_s=NOW_S - 60),))
    found = judged("Reservation", began, reservation="course")
    assert "has begun" in found.sentence and found.certainty is Certainty.LIKELY
    assert "reservation course" in judged("Reservation", reservation="course").sentence
    for reason in ("ReservationDeleted", "ReservationInvalid", "Reservation_course_was_deleted"):
        gone = judged(reason, reservation="course")
        assert (gone.code, gone.certainty) == ("reservation-gone", Certainty.PROVEN)
        assert "course" in gone.sentence
    assert judged(None, native_state="RESV_DEL_HOLD").code == "reservation-gone"


def test_preparing() -> None:
    starts = judged(None, native_state="CONFIGURING", expected_start_s=NOW_S - 400, nodes=("n1",))
    assert starts.code == "preparing" and "for 6 min now" in starts.sentence
    assert "administrator" in starts.next_steps[0].text
    assert "wait" in judged("Prolog").next_steps[0].text


def test_others() -> None:
    assert "matlab:2" in judged("Licenses", licenses="matlab:2").sentence
    array = judged("JobArrayTaskLimit", job_id="40_3")
    assert commands(array) == ["scontrol update jobid=40 arraytaskthrottle=N"]
    refused = judged("QOSNotAllowed")
    assert refused.code == "refused" and CODES[refused.code].fatal
    assert "QOS tiny" in refused.because[1].text
    down = judged("PartitionInactive")
    assert "partition gpu is switched off (state INACTIVE)" in down.sentence


def test_spans() -> None:
    assert [span(one) for one in (-1, 0, 59, 60, 3600, 7800, 86400, 190000)] == [
        "0 s", "0 s", "59 s", "1 min", "1 h", "2 h 10 min", "1 day", "2 days 4 h",
    ]  # fmt: skip


# --- anything -----------------------------------------------------------------------------------

_NUMBERS = st.floats(0, 1e15, allow_nan=False) | st.integers(0, 5).map(float)
_FIELDS = (
    "GrpTRES GrpTRESMins GrpTRESRunMins GrpJobs GrpWall MaxJobs MaxWallPJ MaxTRESPJ MaxTRESPN "
    "MaxTRESMinsPJ MaxTRESPU MaxJobsPU MaxTRESPA MinTRESPJ"
)
_COUNTED = "cpu mem node gres/gpu gres/gpu:a100 billing jobs wall license/x odd"
_LIMITS = st.builds(
    Limit,
    st.sampled_from(["QOS tiny", "QOS x", "account lab", "user alice (account lab)"]),
    st.sampled_from(_FIELDS.split()),
    st.sampled_from(_COUNTED.split()),
    _NUMBERS,
    _NUMBERS,
)


@given(
    st.sampled_from(words()) | st.sampled_from(list(SENTENCES)) | st.text(max_size=60) | st.none(),
    st.text(max_size=40) | st.just("afterok:1(failed)?singleton"),
    st.lists(_LIMITS, max_size=4),
    st.integers(0, 3),
    st.none() | st.floats(0, 4e9),
    st.none() | st.integers(0, 10**9),
    st.integers(0, 4),
)
def test_anything_is_judged_without_an_exception(
    reason: str | None,
    dependency: str,
    limits: list[Limit],
    restarts: int,
    time_s: float | None,
    limit_s: int | None,
    cpus: int,
) -> None:
    job = replace(
        JOB,
        reason=reason,
        dependency=dependency,
        restarts=restarts,
        eligible_s=time_s,
        time_limit_s=limit_s,
        need=NodeNeed(cpus=cpus),
        nodes_wanted=cpus,
    )
    found = judge_reason(job, ClusterView(limits=tuple(limits)), NOW_S)
    if found is not None:
        assert found.code in CODES and found.sentence and found.because


def test_only_the_waiting_elements_of_an_array_are_cancelled_or_changed() -> None:
    found = judged("ReservationDeleted", elements="2,4-9", reservation="course")
    assert commands(found) == [
        "scontrol update jobid='7_[2,4-9]' reservation=",
        "scontrol release '7_[2,4-9]'",
        "scancel '7_[2,4-9]'",
    ]
