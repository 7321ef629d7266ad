"""The GPUs of this node for a while, read in a child process."""

import os
from typing import TYPE_CHECKING, Dict, List, Union

from tunnelkit.probe import proc
from tunnelkit.probe.child import Child

if TYPE_CHECKING:
    from tunnelkit.probe.gpu.record import GpuRecord

#: A driver that has not answered by then is sick.
LIMIT_S = 3.0
_PERIOD_S = 0.5
_SMI_PERIOD_S = 3.0
_DEVICES = ("/dev/nvidiactl", "/dev/dxg", "/proc/driver/nvidia", "/sys/module/amdgpu")
_LIBRARY = "libnvidia-ml.so.1"


class NoGpus:
    """In a child's place, on a node without a driver: a child and its imports cost CPU time."""

    def answer(self, limit_s: float) -> object:
        """Return that there is none."""
        return none_seen("")


def start(seconds: float) -> Union[Child, NoGpus]:
    """Start to read; the answer comes after that time."""
    return Child(lambda: look(seconds)) if _has_driver() else NoGpus()


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


def _has_driver() -> bool:
    """False if there is neither a device nor a library of any driver."""
    if any(os.path.exists(place) for place in _DEVICES) or _on_path("nvidia-smi"):
        return True
    if any(name.startswith("card") for name in proc.names_in("/sys/class/drm")):
        return True
    places = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    if any(os.path.exists(f"{place}/{_LIBRARY}") for place in places if place):
        return True
    return _LIBRARY in proc.whole_text_of("/etc/ld.so.cache", 4 << 20)


def _on_path(name: str) -> bool:
    places = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return any(os.access(f"{place}/{name}", os.X_OK) for place in places)


def _found(source: str, gpus: "List[GpuRecord]") -> Dict[str, object]:
    return {"source": source, "error": "", "gpus": [gpu.to_json() for gpu in gpus]}
