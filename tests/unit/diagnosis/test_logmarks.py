"""Marks in logs: each fault's real words are found, and no line of a healthy log."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.diagnosis.ended_cases import job, verdict, verdicts
from tunnelkit.diagnosis.codes.registry import CODES
from tunnelkit.diagnosis.ended.log.marks import MARKS, find_marks, rank_of
from tunnelkit.diagnosis.verdict import Certainty

BENIGN = (Path(__file__).parent / "data/benign.log").read_text().splitlines()
#: Marks that lead to verdicts of other names.
_INNER = {"ended-by-slurm"}

#: Real words: from issues of torch, JAX, NCCL, from Slurm, OpenPBS and the loader.
FAULTS = (
    ("environment-module", "Lmod has detected the following error: The following module(s) are "
     'unknown: "cuda/99"'),
    ("environment-module", "ERROR: Unable to locate a modulefile for 'gcc/99'"),
    ("conda-not-set-up", "CommandNotFoundError: Your shell has not been properly configured to use "
     "'conda activate'."),
    ("conda-not-set-up", "CondaError: Run 'conda init' before 'conda activate'"),
    ("step-refused", "srun: error: Unable to create step for job 24: More processors requested "
     "than permitted"),
    ("mpi-abort", "MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD with errorcode "
     "7."),
    ("mpi-abort", "Abort(6) on node 2 (rank 2 in comm 0): application called MPI_Abort"),
    ("mpi-abort", "MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD"),
    ("mpi-abort", "MPI_ABORT was invoked on rank 3 in communicator MPI COMMUNICATOR 3 DUP FROM 0"),
    ("mpi-abort", "application called MPI_Abort(MPI_COMM_WORLD, 1) - process 0"),
    ("missing-module", "/usr/bin/python3: No module named notthere"),
    ("oom-limit", "slurmstepd-node1: error: StepId=1.batch exceeded memory limit "
        "(198389760 > 157286400), being killed"),
    ("oom-limit", "slurmstepd: error: Job 77 exceeded memory limit (4276 > 1024), being killed"),
    ("oom-limit", "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=11.batch. Some of "
     "your processes may have been killed by the cgroup out-of-memory handler."),
    ("oom-limit", "slurmstepd-n1: error: Detected 2 oom_kill events in StepId=3.0. Some of the "
     "step tasks have been OOM Killed."),
    ("oom-limit", "srun: error: n1: task 0: Out Of Memory"),
    ("oom-limit", "=>> PBS: job killed: mem 2097152kb exceeded limit 1048576kb"),
    ("oom-limit", "[12.3] Memory cgroup out of memory: Killed process 4711 (python) total-vm:1kB"),
    ("timeout", "=>> PBS: job killed: walltime 5 exceeded limit 3"),
    ("ended-by-slurm", "slurmstepd: error: *** JOB 16 ON n1 CANCELLED AT 2026-11-25T19:02:56 DUE "
     "TO TIME LIMIT ***"),
    ("ended-by-slurm", "slurmstepd-node1: error: *** STEP 16.0 ON n1 CANCELLED AT "
     "2026-11-25T19:02:56 ***"),
    ("ended-by-slurm", "[2026-06-14T11:23:15.694] error: *** STEP 2121067.24 ON n1 CANCELLED AT "
     "2026-06-14T11:23:15 DUE to SIGNAL Terminated ***"),
    ("oom-limit", "[2025-11-16T10:03:44.655] error: Detected 1 oom_kill event in StepId=2.batch. "
     "Some of the step tasks have been OOM Killed."),
    ("gpu-oom", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 "
     "has a total capacity of 79.15 GiB of which 13.25 MiB is free."),
    ("gpu-oom", "RuntimeError: CUDA out of memory. Tried to allocate 1.17 GiB (GPU 0; 24.00 GiB "
     "total capacity; 21.62 GiB already allocated; 0 bytes free; 22.1 GiB reserved)"),
    ("gpu-oom", "RuntimeError: cuda runtime error (2) : out of memory at /pytorch/aten/THC.cu:58"),
    ("gpu-oom", "RuntimeError: CUDA error: out of memory"),
    ("gpu-oom", "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while "
     "trying to allocate 17179869184 bytes."),
    ("gpu-oom", "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory "
     "allocating 64.00GiB."),
    ("gpu-oom", "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to "
     "allocate 64.00GiB."),
    ("gpu-oom", "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Failed to allocate request for "
     "64.00GiB (68719476736B) on device ordinal 0"),
    ("gpu-oom", "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB. GPU 0"),
    ("gpu-oom", "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 8,000,000,000 bytes "
     "(allocated so far: 512 bytes)."),
    ("gpu-oom", "tensorflow.python.framework.errors_impl.ResourceExhaustedError: Graph execution "
     "error: OOM when allocating tensor with shape[64,512]"),
    ("gpu-oom", "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling "
     "`cublasCreate(handle)`"),
    ("gpu-lost", "Unable to determine the device handle for GPU 0000:07:00.0: GPU is lost.  Reboot "
     "the system to recover this GPU"),
    ("gpu-lost", "NVRM: Xid (PCI:0000:07:00): 79, pid=4711, GPU has fallen off the bus."),
    ("gpu-reset", "NVRM: Xid (PCI:0000:07:00): 119, pid=4711, Timeout waiting for RPC from GSP!"),
    ("gpu-memory-error", "NVRM: Xid (PCI:0000:07:00): 48, An uncorrectable double bit error"),
    ("gpu-memory-error", "RuntimeError: CUDA error: uncorrectable ECC error encountered"),
    ("gpu-driver", "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
     "Make sure that the latest NVIDIA driver is installed and running."),
    ("cuda-too-new", "RuntimeError: CUDA error: CUDA driver version is insufficient for CUDA "
     "runtime version"),
    ("cuda-too-new", "RuntimeError: The NVIDIA driver on your system is too old (found version "
     "11040). Please update your GPU driver"),
    ("cuda-no-kernel", "RuntimeError: CUDA error: no kernel image is available for execution on "
     "the device"),
    ("cuda-cpu-build", "AssertionError: Torch not compiled with CUDA enabled"),
    ("cuda-no-gpu", "RuntimeError: No CUDA GPUs are available"),
    ("cuda-no-gpu", "RuntimeError: Found no NVIDIA driver on your system. Please check that you "
     "have an NVIDIA GPU"),
    ("driver-mismatch", "Failed to initialize NVML: Driver/library version mismatch"),
    ("nccl-timeout", "[rank1]:[E ProcessGroupNCCL.cpp:523] [Rank 1] Watchdog caught collective "
     "operation timeout: WorkNCCL(SeqNum=1204, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
     "Timeout(ms)=600000) ran for 600029 milliseconds before timing out."),
    ("nccl-timeout", "[rank3]: torch.distributed.DistBackendError: NCCL error in: ../Proc.cpp:1970,"
     " remote process exited or there was a network error, NCCL version 2.20.5"),
    ("nccl-timeout", "ncclRemoteError: A call failed possibly due to a network error or a remote "
     "process exiting prematurely."),
    ("nccl-timeout", "[rank1]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/"
     "pair.cc:553] Connection closed by peer [127.0.0.1]:7583."),
    ("worker-killed", "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed. "),
    ("shm-full", "RuntimeError: DataLoader worker (pid(s) 4711) is killed by signal: Bus error. It "
     "is possible that dataloader's workers are out of shared memory."),
    ("shm-full", "ERROR: Unexpected bus error encountered in worker. This might be caused by "
     "insufficient shared memory (shm)."),
    ("shm-full", "RuntimeError: unable to write to file </torch_4711_123>: No space left on device "
     "(28)"),
    ("segfault", "RuntimeError: DataLoader worker (pid 9) is killed by signal: Segmentation fault"),
    ("quota-full", "OSError: [Errno 122] Disk quota exceeded: '/home/me/x.pt'"),
    ("quota-full", "cp: error writing 'x.pt': Disk quota exceeded"),
    ("disk-full", "OSError: [Errno 28] No space left on device: '/scratch/x.pt'"),
    ("disk-full", "/var/spool/slurm_script: line 3: echo: write error: No space left on device"),
    ("files-limit", "OSError: [Errno 28] inotify watch limit reached"),
    ("fs-readonly", "OSError: [Errno 30] Read-only file system: '/data/out'"),
    ("fs-stale", "OSError: [Errno 116] Stale file handle: '/data/x.h5'"),
    ("fs-lost", "OSError: [Errno 107] Transport endpoint is not connected: '/mnt/x'"),
    ("fs-lost", "OSError: [Errno 5] Input/output error"),
    ("files-limit", "OSError: [Errno 24] Too many open files: '/data/1.jpg'"),
    ("files-limit", "RuntimeError: received 0 items of ancdata"),
    ("threads-limit", "RuntimeError: can't start new thread"),
    ("threads-limit", "/var/spool/job/slurm_script: fork: retry: Resource temporarily unavailable"),
    ("threads-limit", "OpenBLAS blas_thread_init: pthread_create failed for thread 12 of 64"),
    ("missing-module", "ModuleNotFoundError: No module named 'wandb'"),
    ("missing-library", "ImportError: libcudnn.so.8: cannot open shared object file: No such file"),
    ("missing-library", "./prog: error while loading shared libraries: libmpi.so.40: cannot open "
     "shared object file: No such file or directory"),
    ("glibc-too-old", "./prog: /lib64/libc.so.6: version `GLIBC_2.34' not found (required by "
     "./prog)"),
    ("glibc-too-old", "ImportError: /lib64/libstdc++.so.6: version `GLIBCXX_3.4.29' not found"),
)  # fmt: skip


@pytest.mark.parametrize("line", BENIGN)
def test_a_healthy_line_has_no_mark(line: str) -> None:
    assert not find_marks([line])


def test_the_corpus_is_large() -> None:
    assert len(set(BENIGN)) >= 150


def test_a_healthy_log_is_no_finding() -> None:
    text = "\n".join(BENIGN)
    assert [one.code for one in verdicts(job("COMPLETED"), text)] == ["ok"]
    # And if the job failed, none of these lines is called the cause.
    assert verdict(job("FAILED", 7), text).code == "exit-unknown"
    assert verdict(job("FAILED", 0, 9), text).code == "killed-unknown"
    for state in ("CANCELLED", "PREEMPTED", "NODE_FAIL", "TIMEOUT"):
        assert verdict(job(state, 0, 15, ran_s=3600), text).certainty is Certainty.PROVEN


@pytest.mark.parametrize("line", BENIGN)
def test_no_healthy_last_line_is_called_the_cause(line: str) -> None:
    for code in (1, 2, 126, 127):
        found = verdict(job("FAILED", code), f"begin\n{line}")
        assert found.code in ("exit-unknown", "not-found", "not-executable"), found
        assert found.certainty is not Certainty.PROVEN
    assert [one.code for one in verdicts(job("COMPLETED"), line)] == ["ok"]


@pytest.mark.parametrize(("code", "line"), FAULTS)
def test_a_faults_real_words(code: str, line: str) -> None:
    [hit] = find_marks([line])
    assert hit.mark.code == code
    assert "{" not in hit.sentence


def test_each_mark_leads_to_a_code_and_is_tried() -> None:
    codes = {mark.code for mark in MARKS} - _INNER
    assert codes <= set(CODES)
    assert codes - {"exception"} <= {code for code, _ in FAULTS}


@pytest.mark.parametrize(
    ("line", "rank", "rest"),
    [
        ("[rank3]: KeyError", 3, "KeyError"),
        ("12: text", 12, "text"),
        ("[default0]:text", 0, "text"),
        ("text 3: x", None, "text 3: x"),
        ("[3] text", None, "[3] text"),
    ],
)
def test_the_ranks_prefix(line: str, rank: int | None, rest: str) -> None:
    assert rank_of(line) == (rank, rest)


@pytest.mark.parametrize("piece", ["\n", "a", "a.b/", "Error: ", "[Errno 28] ", "x: 3: ", " ", "1"])
def test_no_log_takes_long(piece: str) -> None:
    text = (piece * 131_072)[:131_072]
    begin_s = time.process_time()
    verdict(job("FAILED", 1), text)
    verdict(job("FAILED", 1), "\n".join([text[:1900]] * 68))
    assert time.process_time() - begin_s < 3.0


@given(st.lists(st.text(max_size=80) | st.sampled_from([line for _, line in FAULTS]), max_size=30))
def test_any_lines(lines: list[str]) -> None:
    for hit in find_marks(lines):
        assert 0 <= hit.line < len(lines)
        assert hit.sentence
