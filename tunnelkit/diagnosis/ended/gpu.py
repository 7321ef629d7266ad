"""The GPU: it failed, its memory is full, or driver and build do not fit."""

from __future__ import annotations

import re

from tunnelkit.diagnosis.ended.case import Case
from tunnelkit.diagnosis.ended.exceptions import (
    certainty_of,
    consequences,
    hit_of_end,
    is_last,
    last_hit,
    one_line,
    source_lines,
)
from tunnelkit.diagnosis.verdict import Certainty, Evidence, NextStep, Verdict, failed_by

#: Return codes of NVML, and Xids, by what they mean. NVIDIA's catalogue sorts Xids by remedy.
_NVML = {15: "gpu-lost", 16: "gpu-reset", 18: "gpu-driver", 9: "gpu-driver"}
_XIDS = {
    79: "gpu-lost",
    **dict.fromkeys((62, 74, 119, 120, 154), "gpu-reset"),
    **dict.fromkeys((48, 63, 64, 94, 95), "gpu-memory-error"),
}
_SENTENCES = {
    "gpu-lost": "the GPU is gone: the driver has lost it",
    "gpu-reset": "the GPU needs a reset",
    "gpu-driver": "the NVIDIA driver of the node does not work",
    "gpu-memory-error": "an error of the GPU's memory",
}
_FULL = re.compile(
    r"GPU (?P<gpu>\d+) has a total capacity of (?P<total>[\d.]+ \S+) of which (?P<free>[\d.]+ "
    r"\S+) is free"
)
_OTHER = re.compile(r"Process (?P<pid>\d+) has (?P<used>[\d.]+ \S+) memory in use")
_RESERVED = re.compile(r"(?P<size>[\d.]+) GiB is reserved by PyTorch but unallocated")
_MANY_GIB = 2.0
#: Scripts begin with nvidia-smi, also on nodes without a GPU. What the CUDA runtime says of a fault
#: counts wherever it stands: a crash of torch's writes a hundred lines after it.
_BY_NVIDIA_SMI = "gpu-driver"
_SMALLER = NextStep(
    "a smaller batch, or gradient checkpointing; --mem does not help: it is the node's memory"
)
_SEGMENTS = NextStep("much is reserved and not used: PYTORCH_ALLOC_CONF=expandable_segments:True")
_STEPS = {
    "cuda-too-new": NextStep("install the build for this driver: `nvidia-smi` shows its CUDA"),
    "cuda-no-kernel": NextStep(
        "install a build with code for this kind of GPU, or ask for another", "tk up --constraint"
    ),
    "cuda-cpu-build": NextStep("install the CUDA build in the environment that the job uses"),
    "driver-mismatch": NextStep("the node needs a reboot after an update: tell its administrator"),
}


def gpu_failed(case: Case) -> Verdict | None:
    """Rule 10: the GPU or its driver failed."""
    code, because, proven = _fault(case)
    if not code or not case.failed:
        return None
    nodes = case.job.nodes if case.job is not None else ()
    node = nodes[0] if len(nodes) == 1 else ""
    return failed_by(
        code,
        _SENTENCES[code] + (f" on {node}" if node else ""),
        Certainty.PROVEN if proven else Certainty.LIKELY,
        (*because, case.record()),
        next_steps=(
            NextStep(f"another node: --exclude {node or 'NODE'}"),
            NextStep("tell the administrator, with the line above"),
        ),
    )


def gpu_memory(case: Case) -> Verdict | None:
    """Rule 11: the GPU's memory was full."""
    found, hit = case.failure, hit_of_end(case, "gpu-oom")
    if hit is None or not case.failed:
        return None
    certainty: Certainty | None = Certainty.LIKELY
    if found is not None:
        certainty = certainty_of(case, found)
    if certainty is None:
        return None
    details = "\n".join((hit.text, *case.lines[hit.line : hit.line + 4]))
    because, steps = _memory(details)
    where = one_line(found).partition(" at ")[2] if found is not None else ""
    return failed_by(
        "gpu-oom",
        hit.sentence + (f", at {where}" if where else ""),
        certainty,
        (*because, *(source_lines(found) if found is not None else ()), case.record()),
        consequences(case, found) if found is not None else (),
        next_steps=steps,
    )


def build_mismatch(case: Case) -> Verdict | None:
    """Rule 12: driver, GPU and the program's build do not fit."""
    hit = hit_of_end(case, *_STEPS, "cuda-no-gpu")
    if hit is None or not case.failed:
        return None
    found = case.failure
    certainty = certainty_of(case, found) if found is not None else Certainty.LIKELY
    if certainty is None:
        return None
    because = [Evidence(hit.text[:200], "log"), case.record()]
    code, step = hit.mark.code, _STEPS.get(hit.mark.code)
    sentence = hit.sentence
    if code == "cuda-no-gpu":
        asked = case.job is not None and case.job.need.gpus
        step = NextStep("does the job see it?", "tk run nvidia-smi -L")
        if case.job is not None and not asked:
            sentence += ", and the job asked for none"
            step = NextStep("with one", "tk up --gpus 1")
    return failed_by(
        code,
        sentence,
        certainty,
        tuple(because),
        next_steps=(step,) if step is not None else (),
    )


def _fault(case: Case) -> tuple[str, list[Evidence], bool]:
    for one in case.box.gpu_faults if case.box is not None else ():
        code = _XIDS.get(one.xid or 0) or _NVML.get(one.nvml or 0)
        if code:
            what = f"Xid {one.xid}" if one.xid else f"NVML answers {one.nvml}"
            return code, [Evidence(f"GPU {one.gpu}: {what}", "NVML", time_s=one.time_s)], True
    hit = last_hit(case, *_SENTENCES)
    if hit is None or (hit.mark.code == _BY_NVIDIA_SMI and not is_last(case, hit)):
        return "", [], False
    return hit.mark.code, [Evidence(hit.text[:200], "log")], False


def _memory(text: str) -> tuple[list[Evidence], tuple[NextStep, ...]]:
    because, steps = [], [_SMALLER]
    full, other, reserved = _FULL.search(text), _OTHER.search(text), _RESERVED.search(text)
    if full:
        words = f"GPU {full['gpu']}: {full['free']} free of {full['total']}"
        because.append(Evidence(words, "the exception"))
    if other:
        words = f"process {other['pid']} has {other['used']}: a neighbour, or one left over"
        because.append(Evidence(words, "the exception"))
        steps.insert(0, NextStep("whose is the other process?", "tk run nvidia-smi"))
    if reserved and float(reserved["size"]) >= _MANY_GIB:
        steps.insert(0, _SEGMENTS)
    return because or [Evidence(text.split("\n")[0][:200], "log")], tuple(steps)
