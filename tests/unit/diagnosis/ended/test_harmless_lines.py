"""Lines that name a fault and end nothing: another failure, later in the log, is the reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.diagnosis.ended_cases import job, verdict
from tunnelkit.diagnosis.evidence.end import StepView
from tunnelkit.diagnosis.evidence.job import JobView

TRACEBACK = """\
Traceback (most recent call last):
  File "/h/train.py", line 88, in collate
    y = row["label"]
KeyError: 'label'
"""
ECC = TRACEBACK.replace(
    "KeyError: 'label'", "RuntimeError: CUDA error: uncorrectable ECC error encountered"
)
SMI = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that "
    "it is installed.\n"
)
NO_SMI = "/s/slurm_script: line 5: nvidia-smi: command not found\n"
NO_MODULE = "/s/slurm_script: line 2: module: command not found\n"
USAGE = "usage: t.py [-h]\nt.py: error: unrecognized arguments: --x\n"
EXECVE = "slurmstepd: error: execve(): tran: No such file or directory\n"
NO_WANDB = TRACEBACK.replace("KeyError: 'label'", "ModuleNotFoundError: No module named 'wandb'")
NO_GPU = TRACEBACK.replace("KeyError: 'label'", "RuntimeError: No CUDA GPUs are available")
INTERRUPT = TRACEBACK.replace("KeyError: 'label'", "KeyboardInterrupt")
STEP_2 = (StepView("0", "x", "FAILED", 2, 0),)


@pytest.mark.parametrize(
    ("found", "text", "steps", "code"),
    [
        (job("FAILED", 1), SMI + "step\n" * 300 + TRACEBACK, (), "exception"),
        (job("FAILED", 1), SMI + TRACEBACK, (), "exception"),
        (job("FAILED", 1), SMI + "step\n" * 300, (), "exit-unknown"),
        (job("FAILED", 9), "step\n" * 300 + SMI, (), "gpu-driver"),
        # That exception was handled.
        (job("FAILED", 9), TRACEBACK + "step\n" * 300 + SMI, (), "gpu-driver"),
        (job("FAILED", 1), ECC,
         (), "gpu-memory-error"),
        (job("FAILED", 2), NO_SMI + "step\n" + USAGE, STEP_2, "bad-arguments"),
        (job("FAILED", 2), NO_SMI + "step\n" * 9, STEP_2, "exit-unknown"),
        (job("FAILED", 2), EXECVE, STEP_2, "not-found"),
        (job("COMPLETED"), EXECVE + "step\n" * 9, STEP_2, "not-found"),
        # sacct shows 255 as 127.
        (replace(job("FAILED", 127), code_by_sacct=True), NO_MODULE + "step\n" * 9, (),
         "exit-unknown"),
        (replace(job("FAILED", 127), code_by_sacct=True), "step\n" * 9 + NO_MODULE, (),
         "not-found"),
        (job("FAILED", 127), NO_MODULE + "step\n" * 9, (), "not-found"),
        # A helper's, which the script tolerated.
        (job("FAILED", 3), NO_WANDB + "step\n" * 200, (), "exit-unknown"),
        (job("FAILED", 3), NO_GPU + "step\n" * 200, (), "exit-unknown"),
        (job("FAILED", 1), NO_WANDB, (), "missing-module"),
        (job("FAILED", 1), NO_GPU, (), "cuda-no-gpu"),
        # Other lines of bash with this code.
        (job("FAILED", 127), "/s/slurm_script: line 4: DATA: unbound variable\n", (),
         "script-error"),
        (job("FAILED", 127), "/s/slurm_script: line 4: wait: pid 4711 is not a child of this "
         "shell\n", (), "script-error"),
        (job("FAILED", 127), "bash: DATA: unbound variable\n", (), "exit-unknown"),
        (job("FAILED", 127), "step\n", (), "not-found"),
        # Python raises it for INT.
        (job("FAILED", 130), INTERRUPT, (), "terminated"),
        (job("FAILED", 0, 2), INTERRUPT, (), "terminated"),
        (job("FAILED", 1), INTERRUPT, (), "exception"),
    ],
)  # fmt: skip
def test_a_harmless_line_long_before_the_end_is_no_reason(
    found: JobView, text: str, steps: tuple[StepView, ...], code: str
) -> None:
    assert verdict(found, text, steps=steps).code == code


def test_a_fault_of_the_gpu_stands_far_above_the_end_of_its_crash() -> None:
    """torch writes its watchdog's stack, what() and the stack again, torchrun its table."""
    said = "Process group watchdog thread terminated with exception: CUDA error: "
    fault = f"{said}uncorrectable ECC error encountered\n"
    frames = "".join(f"frame #{at}: c10::f() + 0x1 (0x7f in libc10.so)\n" for at in range(40))
    text = f"[rank3]:[E516 ProcessGroupNCCL.cpp:1895] {fault}{frames}"
    text += f"terminate called after throwing an instance of 'c10::DistBackendError'\n{frames}"
    assert verdict(job("FAILED", 134), text).code == "gpu-memory-error"
    assert verdict(job("FAILED", 1), ECC + text).code == "gpu-memory-error"
