"""One GPU, and what was read from it several times."""

from typing import Dict, List, Optional


class GpuRecord:
    """busy, memory_busy: percent; None for what the GPU does not tell. reasons: how often each
    bit of NVML's clock reasons was set. processes: bytes of each pid, as the driver counts pids."""

    def __init__(self, index: int, uuid: str, name: str) -> None:
        self.index = index
        self.uuid = uuid
        self.name = name
        self.busy: List[int] = []
        self.memory_busy: List[int] = []
        self.power_w: List[float] = []
        self.clock_mhz: List[int] = []
        self.reasons: Dict[int, int] = {}
        self.reason_samples = 0
        self.limit_w: Optional[float] = None
        self.most_mhz: Optional[int] = None
        self.total_bytes = 0
        self.used_bytes = 0
        self.processes: Optional[Dict[int, int]] = None

    def clear(self) -> None:
        """Forget the samples."""
        for samples in (self.busy, self.memory_busy, self.power_w, self.clock_mhz, self.reasons):
            samples.clear()
        self.reason_samples = 0

    def add_reasons(self, bits: int) -> None:
        """Count the reasons of one sample."""
        self.reason_samples += 1
        for at in range(64):
            if bits >> at & 1:
                self.reasons[1 << at] = self.reasons.get(1 << at, 0) + 1

    def to_json(self) -> Dict[str, object]:
        """Return it as JSON."""
        processes = self.processes
        return {
            "index": self.index,
            "uuid": self.uuid,
            "name": self.name,
            "busy": self.busy,
            "memory_busy": self.memory_busy,
            "power_w": [round(watt, 1) for watt in self.power_w],
            "clock_mhz": self.clock_mhz,
            "reasons": {str(bit): count for bit, count in self.reasons.items()},
            "reason_samples": self.reason_samples,
            "limit_w": self.limit_w,
            "most_mhz": self.most_mhz,
            "total_bytes": self.total_bytes,
            "used_bytes": self.used_bytes,
            "processes": None
            if processes is None
            else [[pid, size] for pid, size in list(processes.items())[:64]],
        }
