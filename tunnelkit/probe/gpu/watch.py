"""The GPUs of this node for a while, read in a child process."""

import os
from typing import Dict, List

from tunnelkit.probe import proc
from tunnelkit.probe.child import Child
from tunnelkit.probe.gpu.record import GpuRecord

#: A driver that has not answered by then is sick.
LIMIT_S = 3.0
_PERIOD_S = 0.5
_SMI_PERIOD_S = 3.0


def start(seconds: float) -> Child:
    """Start to read; the answer comes after that time."""
    return Child(lambda: look(seconds))


def none_seen(error: str) -> Dict[str, object]:
    """Return the answer if the child gave none."""
    return {"source": "", "error": error, "gpus": []}


def look(seconds: float) -> Dict[str, object]:
    """Read for so long, and return what was seen."""
    # Imports cost CPU time: only what this node needs.
    from tunnelkit.probe.gpu import nvml

    try:
        return _found("NVML", nvml.watch(seconds, _PERIOD_S))
    except nvml.NvmlError as error:
        failed = error
    if failed.code == 0:
        if _on_path("nvidia-smi"):
            from tunnelkit.probe.gpu import smi

            try:
                return _found("nvidia-smi", smi.watch(seconds, _SMI_PERIOD_S))
            except smi.SmiError as error:
                return none_seen(str(error))
        from tunnelkit.probe.gpu import amd

        gpus = amd.watch(seconds, _PERIOD_S)
        if gpus:
            return _found("sysfs", gpus)
        nvidia = proc.names_in("/proc/driver/nvidia/gpus")
        return none_seen("no libnvidia-ml.so.1 and no nvidia-smi" if nvidia else "")
    return {**none_seen(f"NVML: {failed}"), "code": failed.code}


def _on_path(name: str) -> bool:
    places = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return any(os.access(f"{place}/{name}", os.X_OK) for place in places)


def _found(source: str, gpus: List[GpuRecord]) -> Dict[str, object]:
    return {"source": source, "error": "", "gpus": [gpu.to_json() for gpu in gpus]}
