"""Jobs whose GPUs do nothing, wait for data, are slowed down, or are nearly full."""

from __future__ import annotations

from tunnelkit.diagnosis.evidence.window import GpuView, NodeWindow, ProcessView
from tunnelkit.diagnosis.running.look import (
    Look,
    main_thread,
    mean,
    percent,
    users_of,
)
from tunnelkit.diagnosis.verdict import Certainty, Evidence, NextStep, Verdict

_FEW_SAMPLES = 2
_BUSY = 50.0
_WAITS = 0.5
_WORKS = 0.5
_LOADS = 0.3
_SLOWED = 0.20
_FULL = 0.95
#: NVML's clock reasons that are no choice of the program's.
_REASONS = {
    0x8: "hardware slowdown (heat or power)",
    0x20: "too hot (software limit)",
    0x40: "too hot (hardware limit)",
    0x80: "power brake of the server",
}


def unused(look: Look) -> Verdict | None:
    """The job has a GPU, no process of it is there, and its CPUs work."""
    gpus = [row for row in look.gpus() if len(row[1].busy) >= _FEW_SAMPLES]
    idle = [(window, gpu) for window, gpu in gpus if _is_unused(window, gpu)]
    if not idle or (look.run < _WORKS and len(idle) == len(gpus)):
        return None
    window, gpu = idle[0]
    sure = all(_nobody_there(window, gpu) for window, gpu in idle)
    names = ", ".join(f"{gpu.index}{look.where(window)}" for window, gpu in idle[:8])
    what = "its GPU" if len(gpus) == 1 else f"{len(idle)} of its {len(gpus)} GPUs"
    return Verdict(
        "gpu-unused",
        f"does not use {what}",
        Certainty.PROVEN if sure else Certainty.LIKELY,
        (
            Evidence(f"GPU {names}: 0 % busy in {window.seconds:.0f} s", window.gpu_source),
            Evidence(
                "no process is on it"
                if gpu.processes == {}
                else "no process of the job is on it"
                if sure
                else "the driver's list of processes can't be matched with the job's",
                window.gpu_source,
            ),
            Evidence(f"CPUs used meanwhile: {look.run:.1f}", "/proc/PID/task/TID/schedstat"),
        ),
        next_steps=(
            NextStep(
                "ask the program's own Python",
                "python -c 'import torch; print(torch.version.cuda, torch.cuda.is_available())'",
            ),
            NextStep('move model and data there: .to("cuda")'),
            NextStep("or ask for no GPU"),
        ),
    )


def _is_unused(window: NodeWindow, gpu: GpuView) -> bool:
    return max(gpu.busy, default=0.0) == 0 and not users_of(window, gpu)


def _nobody_there(window: NodeWindow, gpu: GpuView) -> bool:
    """True if it is certain that no process of the job is on the GPU."""
    return gpu.processes is not None and (window.host_pids or not gpu.processes)


def waits_for_data(look: Look) -> Verdict | None:
    """A GPU is less than half busy, and the thread that feeds it waits for data."""
    for window, gpu in look.gpus():
        busy = mean(gpu.busy)
        if len(gpu.busy) < _FEW_SAMPLES or busy >= _BUSY:
            continue
        main = _feeder(look, window, gpu)
        if main is None or (waits := _waits(window, main)) <= _WAITS:
            continue
        loaders = _loaders(window, main)
        working = [one for one in loaders if one.run >= _LOADS]
        held = [one for one in loaders if _held(window, one) >= _LOADS]
        if working or held or busy > 1:
            return _waiting(look, window, gpu, main, waits, working, held)
    return None


def _feeder(look: Look, window: NodeWindow, gpu: GpuView) -> ProcessView | None:
    """Return the process that uses the GPU: by the driver's list, else the one with most memory
    that has started others."""
    users = users_of(window, gpu)
    if not users:
        if gpu.processes is not None and window.host_pids:
            return None
        parents = {one.parent for where, one in look.programs() if where is window}
        users = [one for where, one in look.programs() if where is window and one.pid in parents]
    return max(users, key=lambda one: one.rss_bytes, default=None)


def _waits(window: NodeWindow, one: ProcessView) -> float:
    thread = main_thread(window, one)
    return thread.share("SD") if thread is not None else 0.0


def _held(window: NodeWindow, one: ProcessView) -> float:
    thread = main_thread(window, one)
    return thread.share("D") if thread is not None else 0.0


def _loaders(window: NodeWindow, main: ProcessView) -> list[ProcessView]:
    below = {main.pid}
    for _ in range(3):
        below |= {one.pid for one in window.processes if one.parent in below}
    return [one for one in window.processes if one.pid in below - {main.pid}]


def _waiting(
    look: Look,
    window: NodeWindow,
    gpu: GpuView,
    main: ProcessView,
    waits: float,
    working: list[ProcessView],
    held: list[ProcessView],
) -> Verdict:
    thread = main_thread(window, main)
    word = {"pipe": "data from a pipe", "receive": "data from a socket", "poll": "data",
            "futex": "another thread"}.get(thread.waits_for if thread else "", "data")  # fmt: skip
    allowed = look.cpus_of(window)
    used = sum(one.run + one.children for one in window.processes)
    share = mean(one.run for one in working)
    loaders = (
        f"{len(working)} workers run at {percent(share)}"
        if working
        else f"{len(held)} workers wait for storage"
        if held
        else "no worker has much to do"
    )
    return Verdict(
        "gpu-waits-for-data",
        f"is slow: GPU {gpu.index}{look.where(window)} waits for data, it is "
        f"{100 - mean(gpu.busy):.0f} % idle",
        Certainty.LIKELY,
        (
            _gpu_line(look, window, gpu),
            Evidence(
                f"{look.who(window, main)} waits {percent(waits)} of the time, for {word}",
                "/proc/PID/task/TID/stat",
                "main",
            ),
            Evidence(
                f"{loaders}; {used:.1f} of {allowed} CPUs used",
                "/proc/PID/task/TID/schedstat",
                "CPUs",
            ),
        ),
        next_steps=_feed(allowed, used, working, held),
    )


def _feed(
    allowed: int, used: float, working: list[ProcessView], held: list[ProcessView]
) -> tuple[NextStep, ...]:
    if held and len(held) >= len(working):
        return (
            NextStep("copy the data to the node's own disk first", "cp -r DATA ${TMPDIR:-/tmp}/"),
            NextStep("pack small files into larger ones"),
        )
    if working and allowed - used >= 1:
        return (
            NextStep(
                f"num_workers={max(allowed - 1, len(working) + 1)} ({allowed} CPUs are allowed; "
                "os.cpu_count() counts the whole machine)"
            ),
        )
    if working:
        return (
            NextStep("ask for more CPUs for each GPU (--cpus-per-task), and start as many workers"),
            NextStep("or do less work on each sample: decode and resize ahead of time"),
        )
    return (NextStep("load ahead: DataLoader(num_workers=..., prefetch_factor=...)"),)


def _gpu_line(look: Look, window: NodeWindow, gpu: GpuView) -> Evidence:
    power = f", {mean(gpu.power_w):.0f} W" if gpu.power_w else ""
    if gpu.power_w and gpu.limit_w:
        power = f", {mean(gpu.power_w):.0f} of {gpu.limit_w:.0f} W"
    memory = ""
    if gpu.total_bytes:
        memory = (
            f", memory {gpu.used_bytes / (1 << 30):.0f} of {gpu.total_bytes / (1 << 30):.0f} GB"
        )
    return Evidence(
        f"{gpu.index}{look.where(window)}: {mean(gpu.busy):.0f} % busy{power}{memory}",
        window.gpu_source,
        "GPU",
    )


def gpu_lines(look: Look) -> tuple[Evidence, ...]:
    """Return a line for each GPU."""
    return tuple(_gpu_line(look, window, gpu) for window, gpu in look.gpus()[:8])


def clocks(look: Look) -> Verdict | None:
    """The GPU's clock is held down by heat or power in more than 20 % of the samples."""
    for window, gpu in look.gpus():
        held = {
            bit: share for bit, share in gpu.reasons.items() if bit in _REASONS and share > _SLOWED
        }
        if not held:
            continue
        bit = max(held, key=lambda one: held[one])
        clock = f"{mean(gpu.clock_mhz):.0f} MHz" if gpu.clock_mhz else "its clock"
        most = f" of {gpu.most_mhz:.0f}" if gpu.most_mhz else ""
        return Verdict(
            "gpu-clocks",
            f"is slow: the clock of GPU {gpu.index}{look.where(window)} is held down: "
            f"{_REASONS[bit]}",
            Certainty.PROVEN,
            (
                Evidence(
                    f"in {percent(held[bit])} of the samples: reason 0x{bit:x}", window.gpu_source
                ),
                Evidence(f"{clock}{most}", window.gpu_source, "clock"),
                _gpu_line(look, window, gpu),
            ),
            next_steps=(
                NextStep("leave this node out", f"sbatch --exclude={window.node} ..."),
                NextStep("tell the administrator: cooling or power"),
            ),
        )
    return None


def memory(look: Look) -> Verdict | None:
    """The GPU's memory is nearly full. A risk: whether it costs time can't be seen from outside."""
    for window, gpu in look.gpus():
        if gpu.total_bytes and gpu.used_bytes > _FULL * gpu.total_bytes:
            return Verdict(
                "gpu-memory",
                f"runs; the memory of GPU {gpu.index}{look.where(window)} is "
                f"{percent(gpu.used_bytes / gpu.total_bytes)} full, which is a risk",
                Certainty.UNKNOWN,
                (_gpu_line(look, window, gpu),),
                next_steps=(
                    NextStep("a smaller batch, if it fails or frees memory again and again"),
                ),
            )
    return None
