"""Jobs that lack CPUs, or do not use them: quota, threads, neighbours, one thread."""

from __future__ import annotations

from tunnelkit.diagnosis.evidence.job import Shape
from tunnelkit.diagnosis.evidence.window import NodeWindow, ProcessView, ThreadView
from tunnelkit.diagnosis.running.look import CpuGroup, Look, mean, percent
from tunnelkit.diagnosis.verdict import Certainty, Evidence, NextStep, Verdict

_THROTTLED = 0.10
_FEW_PERIODS = 10
#: CPUs that threads wait for.
_MUCH_WAIT = 1.0
_FULL = 0.9
#: Of neighbours.
_WAIT = 0.3
_WAIT_SHARE = 0.2
_BUSY_NODE = 0.85
_TAKEN = 0.3
#: Of one thread.
_ALONE = 0.9
_IDLE = 0.05
_GPU_BUSY = 50.0
#: Threads that take turns wait a little for a CPU each time.
_TURNS = 0.7
_SCHEDSTAT = "/proc/PID/task/TID/schedstat"
_LIBRARIES = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS",
)  # fmt: skip


def throttled(look: Look) -> Verdict | None:
    """The kernel held the job back in more than 10 % of the periods of its CPU quota."""
    found = [
        (one.throttled / one.periods, window, one)
        for window in look.windows
        for one in window.quotas
        if one.periods >= _FEW_PERIODS and one.throttled / one.periods > _THROTTLED
    ]
    if not found:
        return None
    share, window, quota = max(found, key=lambda row: row[0])
    return Verdict(
        "throttled",
        f"is slow: its CPU quota of {_cpus(quota.cpus)} is used up in {percent(share)} of the "
        f"periods{look.where(window)}",
        Certainty.PROVEN,
        (
            Evidence(
                f"{quota.throttled} of {quota.periods} periods throttled, "
                f"{quota.throttled_s:.1f} s in all",
                f"{quota.path}/cpu.stat",
            ),
            Evidence(f"quota {_cpus(quota.cpus)}; the job used {look.run:.1f}", quota.path),
        ),
        next_steps=(
            NextStep("ask for more CPUs for each task (--cpus-per-task), or start fewer threads"),
        ),
    )


def too_many_threads(look: Look) -> Verdict | None:
    """The allowed CPUs are full with the job's own threads, and more threads wait for them."""
    found = [
        group
        for group in look.groups()
        if group.wait > _MUCH_WAIT
        and group.run >= _FULL * len(group.cpus)
        and group.wanting > len(group.cpus)
    ]
    if not found:
        return None
    group = max(found, key=lambda one: one.wait / len(one.cpus))
    own = max(group.processes, key=lambda one: one.wait)
    count = len(group.cpus)
    return Verdict(
        "too-many-threads",
        f"is slow: {group.wanting} threads want {_cpus(count)}{look.where(group.window)}",
        Certainty.PROVEN,
        (
            Evidence(
                f"threads wait for a CPU {group.wait:.1f} s in each second; "
                f"{_cpus(count)} allowed, {group.run:.1f} used",
                _SCHEDSTAT,
            ),
            Evidence(
                f"{look.who(group.window, own)}: {own.wanting} of {own.threads} threads"
                f"{_names(group.window, own)}",
                _SCHEDSTAT,
            ),
            *_variables(own),
        ),
        next_steps=_fewer_threads(look, own, count),
    )


def _variables(one: ProcessView) -> tuple[Evidence, ...]:
    settings = [f"{name}={one.env[name]}" for name in _LIBRARIES if name in one.env]
    text = " ".join(settings) if settings else f"{_LIBRARIES[0]} is not set"
    return (Evidence(text, "/proc/PID/environ"),)


def _names(window: NodeWindow, one: ProcessView) -> str:
    names: dict[str, int] = {}
    for thread in window.threads:
        if thread.pid == one.pid and thread.run + thread.wait > 0.5:
            names[thread.name] = names.get(thread.name, 0) + 1
    most = sorted(names.items(), key=lambda row: -row[1])[:3]
    return f" ({', '.join(f'{count} {name}' for name, count in most)})" if most else ""


def _fewer_threads(look: Look, one: ProcessView, count: int) -> tuple[NextStep, ...]:
    fewer = NextStep(
        f"start as many threads as CPUs are allowed: {count}", f"export OMP_NUM_THREADS={count}"
    )
    loaders = NextStep(f"or fewer workers: len(os.sched_getaffinity(0)) is {count}")
    asked = one.env.get("SLURM_CPUS_PER_TASK", "")
    wanted = int(asked) if asked.isascii() and asked.isdigit() and len(asked) < 6 else 0
    wanted = wanted or look.job.need.cpus
    if wanted > count:
        bound = NextStep(
            f"{wanted} CPUs were asked for, and {count} are allowed: tell srun so",
            f"srun --cpus-per-task={wanted} ...",
        )
        return (bound, fewer)
    return (fewer, loaders)


def neighbours(look: Look) -> Verdict | None:
    """Threads wait for CPUs that processes outside the job use."""
    if _lock(look) is not None:
        # Their turns add up to a whole CPU: others cost them nothing.
        return None
    for group in look.groups():
        taken = _taken(look, group)
        share = group.wait / (group.run + group.wait) if group.wait else 0.0
        busy = mean(group.window.cpu_busy.get(cpu, 0.0) for cpu in group.cpus)
        if (
            group.wait >= _WAIT
            and share >= _WAIT_SHARE
            and group.run < _FULL * len(group.cpus)
            and busy >= _BUSY_NODE
            and taken >= _TAKEN
        ):
            return _neighbours(look, group, taken, share)
    return None


def _taken(look: Look, group: CpuGroup) -> float:
    """Return how many of these CPUs others use."""
    busy = sum(group.window.cpu_busy.get(cpu, 0.0) for cpu in group.cpus)
    own = sum(one.run + one.children for one in group.window.processes if one.cpus & group.cpus)
    return max(0.0, busy - own)


def _neighbours(look: Look, group: CpuGroup, taken: float, share: float) -> Verdict:
    window = group.window
    stolen = window.stolen >= taken / 2
    others = "the hypervisor gives" if stolen else "other processes of the node use"
    return Verdict(
        "neighbours",
        f"is slow: {others} {taken:.1f} of its {_cpus(len(group.cpus))}{look.where(window)}",
        Certainty.LIKELY,
        (
            Evidence(
                f"its threads wait {percent(share)} of the time for a CPU "
                f"({group.wait:.1f} CPUs), and run {group.run:.1f}",
                _SCHEDSTAT,
            ),
            Evidence(f"CPUs busy with others: {taken:.1f}", "/proc/stat"),
        ),
        next_steps=(
            NextStep("ask for CPUs that are the job's alone (--exclusive), or for another node"),
            NextStep("who it is", f"ssh {window.node} top"),
        ),
    )


def one_thread(look: Look) -> Verdict | None:
    """One thread computes while the job's other CPUs, or its GPU, have nothing to do."""
    gpus = look.gpus()
    if any(mean(gpu.busy) >= _GPU_BUSY for _, gpu in gpus):
        return None
    if not gpus and (look.cpus < 2 or _asked_for_one(look)):
        return None
    threads = [(window, one) for window in look.windows for one in window.threads]
    busy = [(window, one) for window, one in threads if one.run > _IDLE]
    # With ranks, one that works while the others wait may be as it should be: see `ranks`.
    if (
        not look.has_ranks
        and len(busy) == 1
        and busy[0][1].run > _ALONE
        and look.run < busy[0][1].run + 0.15
    ):
        return _one(look, *busy[0])
    return _lock(look)


def _asked_for_one(look: Look) -> bool:
    """Return True for a job of one CPU that was given a whole core, which counts as two."""
    shape = look.job.shape
    # Where the scheduler gives no shape, all that is known is the number of CPUs.
    is_one = shape != Shape() and shape.tasks * shape.cpus_per_task == 1
    return is_one and len(look.windows) == 1 and look.cpus <= 2


def _one(look: Look, window: NodeWindow, thread: ThreadView) -> Verdict:
    process = next((one for one in window.processes if one.pid == thread.pid), None)
    name = thread.name if process is None else look.who(window, process)
    return Verdict(
        "one-thread",
        f"is as slow as one thread: {name} runs at {percent(thread.run)}, all else waits",
        Certainty.LIKELY,
        (
            Evidence(f"{look.run:.1f} of {_cpus(look.cpus)} used", _SCHEDSTAT),
            *_idle_gpus(look),
        ),
        next_steps=_see(process, window),
    )


def _lock(look: Look) -> Verdict | None:
    """Several Python threads whose time adds up to one CPU: the GIL."""
    for window, one in look.programs():
        runs = [thread for thread in window.threads if thread.pid == one.pid and thread.run >= 0.1]
        total = sum(thread.run for thread in runs)
        python = "python" in one.name or "python" in one.argv.split(" ")[0]
        if not (python and len(runs) >= 2 and 0.85 <= total <= 1.1 and one.run <= 1.15):
            continue
        if one.wait > _TURNS or look.run > one.run + 0.3 or max(t.run for t in runs) > 0.95:
            continue
        return Verdict(
            "one-thread",
            f"is as slow as one thread: {len(runs)} threads of {look.who(window, one)} take "
            "turns (Python's GIL)",
            Certainty.LIKELY,
            (
                Evidence(f"together {percent(total)} of one CPU; {_cpus(look.cpus)}", _SCHEDSTAT),
                *_idle_gpus(look),
            ),
            next_steps=(
                NextStep("use processes (multiprocessing, DataLoader workers) instead of threads"),
                *_see(one, window),
            ),
        )
    return None


def _idle_gpus(look: Look) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(
            f"GPU {gpu.index}{look.where(window)}: {mean(gpu.busy):.0f} % busy", window.gpu_source
        )
        for window, gpu in look.gpus()[:8]
    )


def _see(process: ProcessView | None, window: NodeWindow) -> tuple[NextStep, ...]:
    if process is None:
        return ()
    return (
        NextStep(f"see which function it is, on {window.node}", f"py-spy top --pid {process.pid}"),
    )


def _cpus(count: float) -> str:
    number = f"{count:g}" if count < 10 else f"{count:.0f}"
    return f"{number} CPU" if count == 1 else f"{number} CPUs"
