"""NVIDIA's GPUs by NVML, through ctypes. Calls into a sick driver may never return: run it in a
process of its own."""

import ctypes
import time
from ctypes import Structure, byref, c_char, c_uint, c_ulonglong, c_void_p
from typing import Dict, List, Optional, Tuple

from tunnelkit.probe.gpu.record import GpuRecord

_OK, _TOO_SMALL = 0, 7
_SM = 1
_MOST_GPUS = 32
_MOST_PROCESSES = 128
_NO_BYTES = (1 << 64) - 1


class NvmlError(Exception):
    """NVML is not there, or its start fails. code: NVML's, 0 if there is no library."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class _Utilization(Structure):
    _fields_ = [("gpu", c_uint), ("memory", c_uint)]


class _Memory(Structure):
    _fields_ = [("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong)]


class _Process(Structure):
    _fields_ = [
        ("pid", c_uint),
        ("used", c_ulonglong),
        ("gpu_instance", c_uint),
        ("compute_instance", c_uint),
    ]


class _OldProcess(Structure):
    _fields_ = [("pid", c_uint), ("used", c_ulonglong)]


class Nvml:
    """The library, started. Raises NvmlError."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError as error:
            raise NvmlError(0, str(error)) from None
        code = self._call("nvmlInit_v2")
        if code != _OK:
            raise NvmlError(code, self._words(code))
        count = c_uint()
        code = self._call("nvmlDeviceGetCount_v2", byref(count))
        if code != _OK:
            raise NvmlError(code, self._words(code))
        self.gpus: List[Tuple[c_void_p, GpuRecord]] = []
        for index in range(min(count.value, _MOST_GPUS)):
            handle = c_void_p()
            if self._call("nvmlDeviceGetHandleByIndex_v2", c_uint(index), byref(handle)) == _OK:
                uuid, name = (
                    self._text(word, handle) for word in ("nvmlDeviceGetUUID", "nvmlDeviceGetName")
                )
                self.gpus.append((handle, GpuRecord(index, uuid, name)))

    def read(self) -> None:
        """Read once from each GPU."""
        for handle, gpu in self.gpus:
            use = _Utilization()
            if self._call("nvmlDeviceGetUtilizationRates", handle, byref(use)) == _OK:
                gpu.busy.append(use.gpu)
                gpu.memory_busy.append(use.memory)
            power = self._number("nvmlDeviceGetPowerUsage", handle)
            if power is not None:
                gpu.power_w.append(power / 1000)
            clock = self._clock("nvmlDeviceGetClockInfo", handle)
            if clock is not None:
                gpu.clock_mhz.append(clock)
            reasons = c_ulonglong()
            for name in (
                "nvmlDeviceGetCurrentClocksEventReasons",
                "nvmlDeviceGetCurrentClocksThrottleReasons",
            ):
                if self._call(name, handle, byref(reasons)) == _OK:
                    gpu.add_reasons(reasons.value)
                    break

    def window(self, seconds: float, period_s: float) -> List[GpuRecord]:
        """Read for a while, and return what was seen in it."""
        ends = time.monotonic() + seconds
        for _, gpu in self.gpus:
            gpu.clear()
        self.read_once()
        while True:
            self.read()
            if time.monotonic() + period_s > ends:
                break
            time.sleep(period_s)
        self.read_once()
        return [gpu for _, gpu in self.gpus]

    def read_once(self) -> None:
        """Read what changes little: memory, limits, processes."""
        for handle, gpu in self.gpus:
            memory = _Memory()
            if self._call("nvmlDeviceGetMemoryInfo", handle, byref(memory)) == _OK:
                gpu.total_bytes, gpu.used_bytes = memory.total, memory.used
            limit = self._number("nvmlDeviceGetEnforcedPowerLimit", handle)
            gpu.limit_w = None if limit is None else limit / 1000
            gpu.most_mhz = self._clock("nvmlDeviceGetMaxClockInfo", handle)
            gpu.processes = self._processes(handle)

    def _processes(self, handle: c_void_p) -> Optional[Dict[int, int]]:
        for version in ("_v3", "_v2"):
            count, rows = c_uint(_MOST_PROCESSES), (_Process * _MOST_PROCESSES)()
            name = f"nvmlDeviceGetComputeRunningProcesses{version}"
            if self._call(name, handle, byref(count), rows) in (_OK, _TOO_SMALL):
                shown = list(rows)[: count.value]
                return {one.pid: 0 if one.used == _NO_BYTES else one.used for one in shown}
        count, old = c_uint(_MOST_PROCESSES), (_OldProcess * _MOST_PROCESSES)()
        if self._call("nvmlDeviceGetComputeRunningProcesses", handle, byref(count), old) == _OK:
            return {one.pid: 0 if one.used == _NO_BYTES else one.used for one in old[: count.value]}
        return None

    def _clock(self, name: str, handle: c_void_p) -> Optional[int]:
        number = c_uint()
        return number.value if self._call(name, handle, c_uint(_SM), byref(number)) == _OK else None

    def _number(self, name: str, handle: c_void_p) -> Optional[int]:
        number = c_uint()
        return number.value if self._call(name, handle, byref(number)) == _OK else None

    def _text(self, name: str, handle: c_void_p) -> str:
        buffer = (c_char * 96)()
        found = self._call(name, handle, buffer, c_uint(96)) == _OK
        return buffer.value.decode("ascii", "replace") if found else ""

    def _words(self, code: int) -> str:
        try:
            function = self._library.nvmlErrorString
        except AttributeError:
            return f"NVML error {code}"
        function.restype = ctypes.c_char_p
        return bytes(function(code) or b"").decode("ascii", "replace")

    def _call(self, name: str, *arguments: object) -> int:
        """Call a function; 13 (NVML's own "function not found") if an older driver lacks it."""
        try:
            function = getattr(self._library, name)
        except AttributeError:
            return 13
        return int(function(*arguments))


def watch(seconds: float, period_s: float) -> List[GpuRecord]:
    """Read for a while. Raises NvmlError."""
    return Nvml().window(seconds, period_s)
