"""AMD's GPUs by the kernel's files: no library, no limits on who may read."""

import re
import time
from typing import List, Tuple

from tunnelkit.probe import proc
from tunnelkit.probe.gpu.record import GpuRecord

_DRM = "/sys/class/drm"
_KFD = "/sys/class/kfd/kfd/proc"


def find(drm: str = _DRM) -> List[Tuple[str, GpuRecord]]:
    """Return the GPUs with the directory of each."""
    found: List[Tuple[str, GpuRecord]] = []
    for name in sorted(proc.names_in(drm)):
        device = f"{drm}/{name}/device"
        if re.fullmatch("card[0-9]+", name) and proc.text_of(f"{device}/gpu_busy_percent", 16):
            uuid = proc.text_of(f"{device}/unique_id", 64).strip()
            product = proc.text_of(f"{device}/product_name", 96).strip() or "AMD GPU"
            found.append((device, GpuRecord(len(found), uuid, product)))
    return found[:32]


def read(device: str, gpu: GpuRecord) -> None:
    """Read once."""
    gpu.busy.append(proc.number_of(proc.text_of(f"{device}/gpu_busy_percent", 16)))
    gpu.total_bytes = proc.number_of(proc.text_of(f"{device}/mem_info_vram_total", 32))
    gpu.used_bytes = proc.number_of(proc.text_of(f"{device}/mem_info_vram_used", 32))
    for name in proc.names_in(f"{device}/hwmon"):
        base = f"{device}/hwmon/{name}"
        power = proc.text_of(f"{base}/power1_average", 32) or proc.text_of(
            f"{base}/power1_input", 32
        )
        if power:
            gpu.power_w.append(proc.number_of(power) / 1e6)
        cap = proc.number_of(proc.text_of(f"{base}/power1_cap", 32))
        gpu.limit_w = cap / 1e6 if cap else None


def watch(seconds: float, period_s: float) -> List[GpuRecord]:
    """Read for a while; no GPU if there is none."""
    found = find()
    ends = time.monotonic() + seconds
    while found:
        for device, gpu in found:
            read(device, gpu)
        if time.monotonic() + period_s > ends:
            break
        time.sleep(period_s)
    if len(found) == 1:
        # KFD names the processes, but not on which GPU each is.
        found[0][1].processes = dict.fromkeys(proc.numbers_in(_KFD), 0)
    return [gpu for _, gpu in found]
