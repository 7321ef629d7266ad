"""The rules on ended jobs: their order, their certainty, and that no evidence breaks them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.diagnosis.ended_cases import job, log, verdict, verdicts
from tests.unit.diagnosis.test_logmarks import FAULTS
from tunnelkit.diagnosis.codes.registry import CODES
from tunnelkit.diagnosis.evidence.box import (
    BoxSample,
    BoxView,
    MemoryLevel,
    ProcessEnd,
)
from tunnelkit.diagnosis.evidence.end import EndView, LogView, StepView
from tunnelkit.diagnosis.evidence.job import JobView
from tunnelkit.diagnosis.evidence.storage import Amount, QuotaView, RoomView
from tunnelkit.diagnosis.verdict import Certainty, Diagnosis, Stage, Verdict, failed_by
from tunnelkit.diagnosis.verdict_json import from_json, to_json

PROVEN, LIKELY, UNKNOWN = Certainty.PROVEN, Certainty.LIKELY, Certainty.UNKNOWN
TRACEBACK = """\
step 3
Traceback (most recent call last):
  File "/h/train.py", line 88, in collate
    y = row["label"]
KeyError: 'label'
"""
CUDA_OOM = TRACEBACK.replace(
    "KeyError: 'label'",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
    "capacity of 39.39 GiB of which 1.75 GiB is free. Process 77 has 30.10 GiB memory in use.",
)
OOM_STEP = StepView("0", "python", "OUT_OF_MEMORY", 0, 125)
SLURM_END = "slurmstepd-n1: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-25T19:02:56"
#: As newer releases write it.
STAMPED_END = SLURM_END.replace("slurmstepd-n1: ", "[2026-11-25T19:02:56.166] ")


def raised(words: str) -> str:
    """A traceback whose last line is this."""
    return TRACEBACK.replace("KeyError: 'label'", words)


@pytest.mark.parametrize(
    ("found", "text", "code", "certainty"),
    [
        (job("OUT_OF_MEMORY", 0, 125), "", "oom-limit", PROVEN),
        (job("OUT_OF_MEMORY", 0, 125), TRACEBACK, "oom-limit", PROVEN),
        (job("FAILED", 1), "srun: error: n1: task 0: Out Of Memory", "oom-limit", LIKELY),
        (job("F", -27, None), "", "oom-limit", PROVEN),
        (job("PREEMPTED", 0, 15), TRACEBACK, "preempted", PROVEN),
        (job("NODE_FAIL"), "", "node-failed", PROVEN),
        (job("BOOT_FAIL"), "", "boot-failed", PROVEN),
        (job("DEADLINE"), "", "deadline", PROVEN),
        (job("F", -20, None), "", "node-failed", PROVEN),
        (job("TIMEOUT", 0, 15, ran_s=3600), "step 1", "timeout", PROVEN),
        (job("FAILED", 0, 9, ran_s=3600), f"{SLURM_END} DUE TO TIME LIMIT ***", "timeout", PROVEN),
        (job("F", -29, None), "", "timeout", PROVEN),
        (job("CANCELLED", 0, 15), TRACEBACK, "cancelled", PROVEN),
        (job("CANCELLED", 0, 15), f"{SLURM_END} ***", "cancelled", PROVEN),
        (job("FAILED", 0, 9, ran_s=3600), f"{STAMPED_END} DUE TO TIME LIMIT ***", "timeout",
         PROVEN),
        (job("FAILED", 1), "[2025-11-16T10:03:44.655] error: Detected 1 oom_kill event in StepId="
         "7.batch. Some of the step tasks have been OOM Killed.", "oom-limit", LIKELY),
        (job("FAILED", 0, 53, ran_s=0), "", "launch-output", LIKELY),
        (job("FAILED", 2), "slurmstepd: error: execve(): bad interpreter(/no/py): No such file or "
         "directory", "launch-interpreter", PROVEN),
        (job("FAILED", 126), "/s/slurm_script: line 3: ./a: Permission denied", "not-executable",
         PROVEN),
        (job("FAILED", 127), "/s/slurm_script: line 3: tran: command not found", "not-found",
         PROVEN),
        (job("FAILED", 127), "/s/slurm_script: 3: tran: not found\nmore\n", "not-found", LIKELY),
        (job("FAILED", 127), "", "not-found", LIKELY),
        (job("FAILED", 2), "usage: t.py [-h]\nt.py: error: unrecognized arguments: --x",
         "bad-arguments", LIKELY),
        (job("FAILED", 1), CUDA_OOM, "gpu-oom", PROVEN),
        (job("FAILED", 3), CUDA_OOM, "gpu-oom", LIKELY),
        (job("FAILED", 1), raised("AssertionError: Torch not compiled with CUDA enabled"),
         "cuda-cpu-build", PROVEN),
        (job("FAILED", 1), raised("RuntimeError: No CUDA GPUs are available"), "cuda-no-gpu",
         PROVEN),
        (job("FAILED", 1), raised("OSError: [Errno 122] Disk quota exceeded: '/home/x'"),
         "quota-full", PROVEN),
        (job("FAILED", 1), "cp: error writing 'x': No space left on device", "disk-full", LIKELY),
        (job("FAILED", 1), raised("OSError: [Errno 28] No space left on device: '/dev/shm/x'"),
         "shm-full", PROVEN),
        (job("FAILED", 1), raised("ModuleNotFoundError: No module named 'wandb'"),
         "missing-module", PROVEN),
        (job("FAILED", 127), "./prog: error while loading shared libraries: libmpi.so.40: cannot "
         "open shared object file: No such file or directory", "missing-library", LIKELY),
        (job("FAILED", 1), TRACEBACK, "exception", PROVEN),
        (job("FAILED", 5), TRACEBACK, "exception", LIKELY),
        (job("FAILED", 1), TRACEBACK + "more\n", "exception", LIKELY),
        (job("FAILED", 1), TRACEBACK + "step\n" * 40, "exit-unknown", UNKNOWN),
        (job("FAILED", 139), "", "segfault", LIKELY),
        (job("FAILED", 139), "/s/slurm_script: line 2: 99 Segmentation fault      (core dumped) x",
         "segfault", PROVEN),
        (job("FAILED", 0, 11), "", "segfault", PROVEN),
        (job("FAILED", 134), "Aborted", "abort", PROVEN),
        (job("FAILED", 135), "", "bus", LIKELY),
        (job("FAILED", 132), "", "illegal-instruction", LIKELY),
        (job("FAILED", 153), "", "file-size", LIKELY),
        (job("FAILED", 152), "", "cpu-time", LIKELY),
        (job("FAILED", 0, 9), "", "killed-unknown", UNKNOWN),
        (job("FAILED", 137), "", "killed-unknown", UNKNOWN),
        (job("F", 265, None), "", "killed-unknown", UNKNOWN),
        (job("FAILED", 143), "", "terminated", UNKNOWN),
        (job("FAILED", 7), "working", "exit-unknown", UNKNOWN),
        (job("FAILED", 2), "/s/slurm_script: line 2: syntax error near unexpected token `then'\n"
         "/s/slurm_script: line 2: `if then'", "script-error", LIKELY),
        (job("FAILED", 1), "/h/run.sh: 3: cd: can't cd to /no", "script-error", LIKELY),
        (job("FAILED", 1), "/s/slurm_script: line 2: cd: /no: No such file or directory\nworking",
         "exit-unknown", UNKNOWN),
        (job("FAILED", 1), "host.sh: 2026: done", "exit-unknown", UNKNOWN),
        (job("FAILED", 1), "CondaError: Run 'conda init' before 'conda activate'",
         "conda-not-set-up", LIKELY),
        (job("FAILED", 1), "ModuleCmd_Load.c(213):ERROR:105: Unable to locate a modulefile for "
         "'cuda/99'", "environment-module", LIKELY),
        (job("FAILED", 1), "CondaError: Run 'conda init' before 'conda activate'\n" + "step\n" * 9,
         "exit-unknown", UNKNOWN),
        (job("FAILED", 1), "srun: error: Unable to create step for job 7: Invalid node count",
         "step-refused", LIKELY),
        (job("FAILED", 6), "Abort(6) on node 2 (rank 2 in comm 0): application called MPI_Abort",
         "mpi-abort", LIKELY),
        (job("FAILED", 1), "MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD\n"
         "  Proc: [[1,1],0]\n  Errorcode: 1\n" + "text\n" * 20, "mpi-abort", LIKELY),
        (job("FAILED", 1), "MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD\n"
         "with errorcode 1.\n" + "text\n" * 30, "exit-unknown", UNKNOWN),
        (job("FAILED", 1), "/usr/bin/python3: No module named notthere", "missing-module", LIKELY),
        (job("FAILED", 9), "/s/slurm_script: line 2: 99 Killed   bash -c x", "killed-unknown",
         UNKNOWN),
        (job("COMPLETED"), "srun: error: n1: task 0: Exited with exit code 3", "step-failed",
         LIKELY),
        (job("COMPLETED"), TRACEBACK, "ok", LIKELY),
        (job("COMPLETED"), CUDA_OOM, "ok", LIKELY),
        (job("COMPLETED"), TRACEBACK + "step\n" * 40, "ok", PROVEN),
        (job("F", 0, None), "", "ok", PROVEN),
        (job("F", None, None), "", "exit-unknown", UNKNOWN),
        (None, "", "no-record", UNKNOWN),
    ],
)  # fmt: skip
def test_the_first_rule_that_holds(
    found: JobView | None, text: str, code: str, certainty: Certainty
) -> None:
    first = verdict(found, text)
    assert (first.code, first.certainty) == (code, certainty), first


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (TRACEBACK, "exception"),
        (CUDA_OOM, "gpu-oom"),
        (raised("OSError: [Errno 28] No space left on device: '/scratch/x'"), "disk-full"),
        (raised("ModuleNotFoundError: No module named 'wandb'"), "missing-module"),
        (f"{SLURM_END} DUE TO TIME LIMIT ***", "timeout"),
        (f"{SLURM_END} DUE TO PREEMPTION ***", "preempted"),
        (f"{SLURM_END} ***", "cancelled"),
        (f"{STAMPED_END} DUE TO TIME LIMIT ***", "timeout"),
        (f"{STAMPED_END} DUE to SIGNAL Terminated ***", "cancelled"),
        ("=>> PBS: job killed: walltime 5 exceeded limit 3", "timeout"),
        ("srun: error: n1: task 0: Out Of Memory", "oom-limit"),
        ("Segmentation fault (core dumped)", "segfault"),
        # What was handled, and what only ended, is no cause.
        (TRACEBACK + "epoch\n" * 30, "no-record"),
        ("epoch 1\nepoch 2\n", "no-record"),
    ],
)
def test_a_log_alone_proves_nothing(text: str, code: str) -> None:
    found = verdict(None, text)
    assert found.code == code
    assert found.certainty is (UNKNOWN if code == "no-record" else LIKELY)


def test_the_job_was_killed_near_its_limit() -> None:
    found = verdict(job("FAILED", 0, 9, ran_s=3630, limit_s=3600))
    assert (found.code, found.certainty) == ("timeout", LIKELY)


def test_a_step_out_of_memory_behind_another_code() -> None:
    found = verdict(job("FAILED", 5), "done\n", steps=(OOM_STEP,))
    assert (found.code, found.certainty) == ("oom-limit", PROVEN)
    hidden = verdicts(job("COMPLETED"), "done\n", steps=(OOM_STEP,))
    assert [one.code for one in hidden] == ["oom-limit", "step-failed"]


def test_a_step_that_tk_started_is_no_failure_that_the_script_hid() -> None:
    for name in ("tk-agent", "tk-relay", "tk-step"):
        found = verdict(job("COMPLETED"), steps=(StepView("0", name, "FAILED", 3, 0),))
        assert found.code == "ok"
    found = verdict(job("COMPLETED"), steps=(StepView("0", "train", "FAILED", 3, 0),))
    assert found.code == "step-failed"


def test_a_missing_directory_of_the_output_is_proven() -> None:
    absent = LogView("/h/logs/7.log", "", problem="its directory is not there", no_directory=True)
    found = verdict(job("FAILED", 0, 53, ran_s=0), end=EndView(logs=(absent,)))
    assert (found.code, found.certainty) == ("launch-output", PROVEN)
    assert found.next_steps[0].command == "mkdir -p /h/logs"


@pytest.mark.parametrize("end", [SLURM_END, STAMPED_END])
def test_only_the_last_run_of_an_appended_log_counts(end: str) -> None:
    text = CUDA_OOM + f"{end} DUE TO PREEMPTION ***\nworking\n"
    found = verdict(job("FAILED", 7, restarts=1), text)
    assert found.code == "exit-unknown"
    assert [one.text for one in found.because if one.label == "earlier"]


def test_a_cancelled_job_shows_an_exception_but_does_not_blame_it() -> None:
    found = verdict(job("CANCELLED", 0, 15), TRACEBACK)
    assert [one.text for one in found.because if one.label == "also"] == [
        "KeyError: 'label' at train.py:88 in collate"
    ]


@pytest.mark.parametrize(
    ("state", "own", "words"),
    [
        ("CANCELLED by 1000", 1000, "was cancelled by yourself"),
        ("CANCELLED by 0", 1000, "was cancelled by root (an administrator)"),
        ("CANCELLED by 77", 1000, "was cancelled by uid 77"),
    ],
)
def test_who_cancelled(state: str, own: int, words: str) -> None:
    end = EndView(job=StepView("", "x", state), users=((0, "root"),), own_uid=own)
    assert verdict(job("CANCELLED", 0, 15), end=end).sentence == words


def test_ranks_that_lost_another_are_consequences() -> None:
    lost = "RuntimeError: [/p/third_party/gloo/gloo/x.cc:1] Connection closed by peer [1]:7583."
    victim = "\n".join(f"[rank1]: {line}" for line in raised(lost).splitlines())
    cause = "\n".join(f"[rank2]: {line}" for line in TRACEBACK.splitlines())
    for text in (f"{victim}\n{cause}\n", f"{cause}\n{victim}\n"):
        found = verdict(job("FAILED", 1), text)
        assert found.code == "exception" and "(rank 2)" in found.sentence
        assert found.consequences == ("rank 1: gloo lost another rank",)
    alone = verdict(job("FAILED", 1), victim)
    assert (alone.code, alone.certainty) == ("nccl-timeout", LIKELY)


def test_details_of_a_full_gpu() -> None:
    found = verdict(job("FAILED", 1), CUDA_OOM)
    assert found.because[0].text == "GPU 0: 1.75 GiB free of 39.39 GiB"
    assert "process 77 has 30.10 GiB" in found.because[1].text
    assert found.next_steps[0].command == "tk run nvidia-smi"


def test_a_full_file_system_is_looked_at() -> None:
    text = raised("OSError: [Errno 28] No space left on device: '/data/me/x.pt'")
    room = RoomView("/data/me", "/data", 10 << 30, 0, 1.0, 0.2)
    end = EndView(logs=(log(text),), rooms=(room,))
    found = verdict(job("FAILED", 1), end=end)
    assert found.code == "disk-full"
    assert [one.text for one in found.because if one.label == "now"] == [
        "/data: 0 bytes free of 10 GB (100% used, inodes 20%)"
    ]
    many = RoomView("/data/me", "/data", 10 << 30, 5 << 30, 0.5, 1.0)
    assert verdict(job("FAILED", 1), end=EndView(logs=(log(text),), rooms=(many,))).code == (
        "inodes-full"
    )


def test_a_quota_has_figures() -> None:
    room = RoomView("/home/me", "/home", 1 << 40, 1 << 39, 0.5, None, "nfs1:/home")
    full = QuotaView("nfs1:/home", "user", "me", Amount(50 << 30, 50 << 30))
    for number, words in ((122, "Disk quota exceeded"), (28, "No space left on device")):
        text = raised(f"OSError: [Errno {number}] {words}: '/home/me/x.pt'")
        end = EndView(logs=(log(text),), rooms=(room,), quotas=(full,))
        found = verdict(job("FAILED", 1), end=end)
        assert (found.code, found.certainty) == ("quota-full", PROVEN)
        assert found.sentence == (
            "failed: you have used 50.0 of 50.0 GB of /home (user quota): /home/me/x.pt"
        )
        assert found.because[2].text == "/home: 50.0 of 50.0 GB used (user quota)"
    # There is room again: the figures are told, and are no cause.
    some = replace(full, blocks=Amount(40 << 30, 50 << 30))
    end = EndView(logs=(log(text),), rooms=(room,), quotas=(some,))
    found = verdict(job("FAILED", 1), end=end)
    assert (found.code, found.because[2].text) == (
        "disk-full", "/home: 40.0 of 50.0 GB used (user quota)",
    )  # fmt: skip


def test_progress_gives_a_figure_for_the_time() -> None:
    found = verdict(job("TIMEOUT", 0, 15, ran_s=3600), "step 500/1000 loss 0.1\n")
    assert found.next_steps[0].command == "tk up --time 2:30:00"


def test_a_site_whose_slurm_measures_memory_itself() -> None:
    line = "slurmstepd-n1: error: StepId=7.batch exceeded memory limit (198389760 > 157286400), "
    found = verdict(job("FAILED", 0, 9), line + "being killed\n")
    assert (found.code, found.certainty) == ("oom-limit", LIKELY)
    assert found.predicate == (
        "failed, most likely: Slurm killed it for memory: it used 189 MB, and its limit is 150 MB"
    )


def test_a_likely_verdict_says_so_behind_the_jobs_number() -> None:
    found = Verdict("hang", "stands still", LIKELY)
    assert found.predicate == "most likely stands still"
    assert replace(found, certainty=PROVEN).predicate == "stands still"
    # What is certain stands before the doubt, whatever its words are.
    cause = failed_by("exception", "failed: twice", LIKELY, ())
    assert cause.predicate == "failed, most likely: failed: twice"
    assert replace(cause, certainty=PROVEN).predicate == cause.sentence == "failed: failed: twice"
    assert replace(cause, fact=cause.sentence).predicate == cause.sentence
    by_chance = Verdict("held", "failed: is the name of its reservation", LIKELY)
    assert by_chance.predicate == f"most likely {by_chance.sentence}"
    whole = Diagnosis("7", Stage.ENDED, (cause, replace(found, code="ok")))
    assert from_json(to_json(whole)) == whole


def test_without_samples_cpu_time_of_the_accounting_hints_at_a_hang() -> None:
    steps = (StepView("batch", "batch", "CANCELLED", 0, 15, cpu_s=0.56),)
    found = verdict(job("TIMEOUT", 0, 15, ran_s=3600), steps=steps)
    assert (found.code, found.certainty) == ("timeout-hang", LIKELY)


# -- any evidence

_STATES = st.sampled_from(
    ["COMPLETED", "FAILED", "CANCELLED", "CANCELLED by 0", "TIMEOUT", "OUT_OF_MEMORY", "PREEMPTED",
     "NODE_FAIL", "F", "X", "", "?"]
) | st.text(max_size=6)  # fmt: skip
_NUMBERS = st.none() | st.integers(-300, 400)
_TEXTS = st.lists(
    st.text(max_size=60)
    | st.sampled_from([line for _, line in FAULTS])
    | st.sampled_from(TRACEBACK.splitlines())
    | st.sampled_from([f"{SLURM_END} DUE TO PREEMPTION ***", "Killed", "step 1/2",
                       "x: line 2: 9 Aborted y", "a: 3: b: not found"]),
    max_size=12,
).map("\n".join)  # fmt: skip
_STEPS = st.builds(
    StepView, st.sampled_from(["batch", "0", "extern", ""]), st.text(max_size=4), _STATES,
    _NUMBERS, _NUMBERS,
)  # fmt: skip
_LEVELS = st.builds(
    MemoryLevel, st.sampled_from(["job", "above"]), st.just(""), _NUMBERS, _NUMBERS,
    st.none() | st.integers(0, 3), st.none() | st.integers(0, 3),
)  # fmt: skip
_BOXES = st.builds(
    BoxView,
    memory=st.lists(_LEVELS, max_size=3).map(tuple),
    ends=st.lists(
        st.builds(ProcessEnd, st.integers(1, 9), code=_NUMBERS, signal=_NUMBERS), max_size=2
    ).map(tuple),
    samples=st.lists(
        st.builds(BoxSample, st.floats(0, 1e5), st.none() | st.floats(0, 1e5)), max_size=5
    ).map(tuple),
)


@given(
    st.none() | st.builds(job, _STATES, _NUMBERS, _NUMBERS, ran_s=st.floats(0, 1e7)),
    _TEXTS,
    st.lists(_STEPS, max_size=3).map(tuple),
    st.none() | _BOXES,
)
def test_any_evidence_leads_to_a_verdict(
    found: JobView | None, text: str, steps: tuple[StepView, ...], box: BoxView | None
) -> None:
    for one in verdicts(found, text, steps=steps, box=box):
        assert CODES[one.code].stage is Stage.ENDED
        assert one.sentence and one.sentence.startswith(one.fact)
        assert one.sentence.startswith("failed: ") or one.fact != "failed"
        assert one.because


@given(_TEXTS)
def test_a_log_alone_finds_nothing_wrong_with_a_job_that_ended_well(text: str) -> None:
    found = verdict(job("COMPLETED"), text)
    # A step's failure, in srun's own words, is what a script can hide.
    assert found.code == "ok" or "srun: error: " in text
