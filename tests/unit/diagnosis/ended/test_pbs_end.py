"""The end of a job of PBS: its own exit codes, qdel, pbs_mom's line, the cgroup hook's line."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.scheduler.pbs_transcripts import as_text
from tunnelkit.diagnosis.codes.registry import CODES
from tunnelkit.diagnosis.ended.pbs import pbs_record
from tunnelkit.diagnosis.ended.rules import judge_end
from tunnelkit.diagnosis.evidence.end import EndView, LogView, StepView
from tunnelkit.diagnosis.evidence.job import JobView, NodeNeed
from tunnelkit.diagnosis.verdict import Certainty, Verdict
from tunnelkit.model import JobState
from tunnelkit.scheduler.pbs.inspect.ended import end_view
from tunnelkit.scheduler.pbs.inspect.job import job_view
from tunnelkit.scheduler.pbs.parse import parse_full

RAN = "Job run at Sat Nov 21 at 08:05 on (node2:ncpus=1)"
WALLTIME = "=>> PBS: job killed: walltime 5 exceeded limit 3"
KERNEL = "Memory cgroup out of memory: Killed process 4711 (python3) total-vm:9kB"


def ended(
    code: int | None, reason: str = RAN, log: str = "", *, native: str = "F", mem: int | None = None
) -> Verdict | None:
    signal = code - 256 if code is not None and code > 256 else None
    job = JobView(
        "29.login", JobState.ENDED, native, reason, user="alice", start_s=1.0, exit_code=code,
        signal=signal, time_limit_s=3, need=NodeNeed(1, mem),
    )  # fmt: skip
    step = StepView("batch", "x", native, code, signal, max_rss_bytes=3 << 30)
    return judge_end(job, EndView((step,), (LogView("/h/x.o29", log),)), 1_795_248_500.0)[0]


@pytest.mark.parametrize(
    ("case", "code", "words"),
    [
        ("qstat-walltime-killed", "timeout", "reached its time limit of 0:00:03"),
        ("qstat-after-qdel", "cancelled", "before it ran"),
        ("after-qdel-running", "cancelled", "by you"),
        ("qstat-finished-exit-3", "exit-unknown", "exit code 3"),
    ],
)
def test_ends_as_a_real_openpbs_recorded_them(case: str, code: str, words: str) -> None:
    record = parse_full(as_text(case).text)[0]
    [found] = judge_end(job_view(record), end_view({}, record), 1_795_248_500.0)
    assert found.code == code and words in found.sentence
    if code != "exit-unknown":
        assert found.because[0].source.startswith("qstat -x -f")


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (-1, "launch-refused", "never ran"), (-2, "launch-refused", "never ran"),
        (-4, "node-failed", "restarted"), (-10, "launch-refused", "know you"),
        (-11, "put-back", "twice"), (-13, "launch-refused", "password"),
        (-17, "hook-ended", "hook"), (-19, "hook-ended", "hook"),
        (-20, "node-failed", "lost its first node"), (-24, "cpus-exceeded", "CPUs"),
        (-25, "cpus-exceeded", "CPUs"), (-26, "oom-limit", "virtual memory"),
        (-27, "oom-limit", "more memory"), (-28, "cput-exceeded", "CPU time"),
        (-29, "timeout", "time limit"), (0, "ok", "well"), (1, "exit-unknown", "exit code 1"),
        (137, "killed-unknown", "KILL"), (265, "killed-unknown", "KILL"),
        (271, "terminated", "TERM"), (-99, "exit-unknown", "-99"),
    ],
)  # fmt: skip
def test_exit_codes(status: int, code: str, words: str) -> None:
    found = ended(status)
    assert found is not None
    assert found.code == code and words in found.sentence
    known = code in ("ok",) or (status < 0 and status != -99)
    assert found.certainty is (Certainty.PROVEN if known else Certainty.UNKNOWN)


@pytest.mark.parametrize(
    ("status", "code"),
    [(-10, "oom-limit"), (-11, "timeout"), (-12, "cput-exceeded"), (-9, "launch-refused")],
)
def test_torque_counts_otherwise(status: int, code: str) -> None:
    found = ended(status, native="C")
    assert found is not None and found.code == code


def test_the_line_on_stderr_adds_how_much_was_used() -> None:
    found = ended(-29, log=f"epoch 3\n{WALLTIME}\n")
    assert found is not None
    assert "walltime 5, limit 3" in found.sentence
    assert any(one.text == WALLTIME for one in found.because)
    memory = ended(-27, log="=>> PBS: job killed: mem 2048kb exceeded limit 1024kb", mem=2 << 30)
    assert memory is not None and "mem 2048kb, limit 1024kb" in memory.sentence
    assert [one.text for one in memory.because if one.label == "asked"] == ["2.0 GB"]
    assert any("3.0 GB" in one.text for one in memory.because if one.label == "used")


def test_a_line_that_the_program_could_have_written_proves_nothing() -> None:
    killed = ended(271, log=WALLTIME)
    assert killed is not None
    assert (killed.code, killed.certainty) == ("timeout", Certainty.LIKELY)
    well = ended(0, log=WALLTIME)
    assert well is not None and well.code == "ok"
    other = ended(271, log="=>> PBS: job killed: mppe 5 exceeded limit 3")
    assert other is not None and other.code == "terminated"


def test_a_reached_memory_limit_is_a_kill_only_with_the_kernel_s_line() -> None:
    killed = ended(137, log=f"Cgroup mem limit exceeded: {KERNEL}\n")
    assert killed is not None
    assert (killed.code, killed.certainty) == ("oom-limit", Certainty.PROVEN)
    assert any("4711 (python3)" in one.text for one in killed.because)
    only = ended(137, log="Cgroup mem limit exceeded: \n")
    assert only is not None and only.code == "killed-unknown"


@pytest.mark.parametrize("kernel", [
    KERNEL,
    "oom-kill:constraint=CONSTRAINT_MEMCG,task_memcg=/pbs_jobs.service/jobid/29.login,pid=4711",
    # Kernels before 5.0; the number of the job is in no other of their lines.
    "Task in /pbspro/jobid/29.login killed as a result of limit of /pbspro/jobid/29.login",
])  # fmt: skip
@pytest.mark.parametrize(("status", "certainty"), [
    (137, Certainty.PROVEN), (265, Certainty.PROVEN), (1, Certainty.LIKELY),
    (143, Certainty.LIKELY),
])  # fmt: skip
def test_the_hook_writes_at_the_end_of_the_job_only(
    kernel: str, status: int, certainty: Certainty
) -> None:
    """So its line is the last one, and does not say when the kernel killed."""
    log = "epoch 1\n" + "step\n" * 50 + f"Cgroup mem limit exceeded: {kernel}\n"
    found = ended(status, log=log + f"Cgroup memsw limit exceeded: {kernel}")
    assert found is not None
    assert (found.code, found.certainty) == ("oom-limit", certainty)
    well = ended(0, log=log)
    assert well is not None and (well.code, well.certainty) == ("ok", Certainty.LIKELY)
    assert "but its log shows" in well.sentence


def test_a_line_far_above_the_end_is_no_reason() -> None:
    raised = (
        'Traceback (most recent call last):\n  File "/t.py", line 8, in f\n    x\nKeyError: 1\n'
    )
    kernel = f"Cgroup mem limit exceeded: {KERNEL}\n" + "step\n" * 50
    for line in (kernel, f"{WALLTIME}\n", f"{WALLTIME}\nstep\n"):
        found = ended(1, log=line + raised)
        assert found is not None and (found.code, found.certainty) == (
            "exception", Certainty.PROVEN,
        )  # fmt: skip
    for text in (kernel, f"Cgroup mem limit exceeded: {KERNEL}\n"):
        again = ended(0, log=text)
        assert again is not None and again.code == "ok"
    killed = ended(265, log=kernel)
    assert killed is not None
    assert (killed.code, killed.certainty) == ("oom-limit", Certainty.LIKELY)
    found = ended(271, log=f"{WALLTIME}\nbye\n")
    assert found is not None and found.code == "timeout"


def test_who_deleted_it() -> None:
    mine = ended(271, f"{RAN} and terminated by alice@login")
    other = ended(271, f"{RAN} and terminated by root@login")
    assert mine is not None and mine.sentence == "was deleted by you"
    assert other is not None and other.sentence == "was deleted by root@login"


def test_a_job_that_was_moved() -> None:
    found = ended(None, 'Job has been moved to "long@other"', native="M")
    assert found is not None and found.code == "moved" and "long@other" in found.sentence
    assert found.next_steps[0].command == "qstat -f 29.login@other"


def test_a_job_that_is_still_ending_is_asked_about_again() -> None:
    found = ended(None, native="E")
    assert found is not None and "is ending" in found.sentence


@given(st.integers(-400, 400) | st.none(), st.text(max_size=80), st.text(max_size=200),
       st.sampled_from("FXECRM"))  # fmt: skip
def test_any_end_is_judged(status: int | None, reason: str, log: str, native: str) -> None:
    found = ended(status, reason, log, native=native)
    assert found is None or (found.code in CODES and found.sentence)


@given(st.lists(st.sampled_from([WALLTIME, "Cgroup mem limit exceeded:", KERNEL, "\n", "=>> PBS:"]),
                max_size=8).map(" ".join))  # fmt: skip
def test_marks_in_any_order_are_judged(log: str) -> None:
    found = pbs_record(
        JobView("1", JobState.ENDED, "F", exit_code=1), EndView((), (LogView("", log),))
    )
    assert found is None or found.code in CODES


@pytest.mark.parametrize(("nodes", "advice"), [(1, True), (2, False)])
def test_a_jobs_memory_is_compared_with_the_jobs_request(nodes: int, advice: bool) -> None:
    """resources_used.mem is that of all chunks; a chunk's request is no limit of it."""
    recorded = parse_full(as_text("qstat-finished-exit-3").text)[0]
    changes = {
        "exit_status": "0", "resources_used.mem": "4194304kb", "resource_list.mem": "32gb",
        "resource_list.select": f"{nodes}:ncpus=1:mem={32 // nodes}gb",
        "stime": "Sat Nov 21 08:05:00 2026", "mtime": "Sat Nov 21 08:25:00 2026",
    }  # fmt: skip
    later = ("history_timestamp", "obittime", "comp_time")
    kept = {name: text for name, text in recorded.attributes.items() if name not in later}
    attributes = {**kept, **changes}
    record = replace(recorded, attributes=attributes)
    [found] = judge_end(job_view(record), end_view({}, record), 1_795_248_500.0)
    assert found.code == "ok"
    peak = found.because[1]
    assert peak.text == "memory: 4 GB of 32 GB at its highest sample"
    assert peak.source == "qstat: resources_used.mem"
    assert any("--mem" in one.command for one in found.next_steps) is advice
