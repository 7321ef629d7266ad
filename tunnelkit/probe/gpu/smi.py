"""NVIDIA's GPUs by nvidia-smi, where NVML can't be loaded. Each call costs much: few samples."""

import subprocess
import time
from typing import Dict, List, Optional

from tunnelkit.probe.gpu.record import GpuRecord

_FIELDS = (
    "index,uuid,name,utilization.gpu,utilization.memory,memory.total,memory.used,power.draw,"
    "enforced.power.limit,clocks.sm,clocks.max.sm"
)
_REASONS = ",clocks_throttle_reasons.active"
_LIMIT_S = 3.0
_MIB = 1 << 20
_MOST_GPUS = 32


class SmiError(Exception):
    """nvidia-smi is not there, fails, or does not answer."""


def parse_gpus(text: str, known: Dict[str, GpuRecord]) -> None:
    """Add one call's rows to the GPUs, by their index."""
    for line in text.splitlines():
        words = [word.strip() for word in line.split(",")]
        if len(words) < 11 or not words[0].isdigit() or len(known) >= _MOST_GPUS:
            continue
        gpu = known.setdefault(words[0], GpuRecord(int(words[0]), words[1][:96], words[2][:96]))
        busy, memory_busy = _number(words[3]), _number(words[4])
        if busy is not None:
            gpu.busy.append(int(busy))
        if memory_busy is not None:
            gpu.memory_busy.append(int(memory_busy))
        gpu.total_bytes = int((_number(words[5]) or 0) * _MIB)
        gpu.used_bytes = int((_number(words[6]) or 0) * _MIB)
        power, clock, most = _number(words[7]), _number(words[9]), _number(words[10])
        if power is not None:
            gpu.power_w.append(power)
        gpu.limit_w = _number(words[8])
        if clock is not None:
            gpu.clock_mhz.append(int(clock))
        gpu.most_mhz = None if most is None else int(most)
        if len(words) > 11 and words[11].startswith("0x"):
            try:
                gpu.add_reasons(int(words[11], 16) & (1 << 64) - 1)
            except ValueError:
                continue


def parse_processes(text: str, known: Dict[str, GpuRecord]) -> None:
    """Add `uuid, pid, MiB` rows."""
    for gpu in known.values():
        gpu.processes = {}
    for line in text.splitlines():
        words = [word.strip() for word in line.split(",")]
        if len(words) < 3 or not words[1].isdigit():
            continue
        for gpu in known.values():
            if gpu.uuid == words[0] and gpu.processes is not None:
                gpu.processes[int(words[1])] = int((_number(words[2]) or 0) * _MIB)


def watch(seconds: float, period_s: float) -> List[GpuRecord]:
    """Read for a while. Raises SmiError."""
    known: Dict[str, GpuRecord] = {}
    ends = time.monotonic() + seconds
    fields = _FIELDS + _REASONS
    while True:
        try:
            text = _smi(f"--query-gpu={fields}")
        except SmiError:
            if fields == _FIELDS:
                raise
            fields = _FIELDS
            continue
        parse_gpus(text, known)
        if time.monotonic() + period_s > ends:
            break
        time.sleep(period_s)
    parse_processes(_smi("--query-compute-apps=gpu_uuid,pid,used_memory"), known)
    return list(known.values())


def _smi(query: str) -> str:
    try:
        done = subprocess.run(
            ["nvidia-smi", query, "--format=csv,noheader,nounits"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SmiError("nvidia-smi does not answer within 3 s") from None
    except OSError as error:
        raise SmiError(f"nvidia-smi can't be run: {error.strerror}") from None
    text = done.stdout[:65536].decode("utf-8", "replace")
    if done.returncode != 0:
        lines = text.strip().splitlines() or [f"exit code {done.returncode}"]
        raise SmiError(f"nvidia-smi: {lines[-1][:200]}")
    return text


def _number(text: str) -> Optional[float]:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if 0 <= found < 1e9 else None
