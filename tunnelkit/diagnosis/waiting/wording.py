"""Amounts, times and requests of waiting jobs in words.

Clock times are in the time zone of the laptop.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from tunnelkit.diagnosis.evidence.job import JobView, Shape
from tunnelkit.diagnosis.waiting.room import Lack, gpu_words

_DAY_S = 86400


def span(seconds: float) -> str:
    """Return a time for people: `40 s`, `50 min`, `2 h 10 min`, `3 days 4 h`."""
    minutes = int(max(0.0, seconds) // 60)
    if minutes < 1:
        return f"{int(max(0.0, seconds))} s"
    hours, left = divmod(minutes, 60)
    if hours < 1:
        return f"{minutes} min"
    if hours < 48:
        return f"{hours} h {left} min" if left else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} days {hours} h" if hours else f"{days} days"


def clock(time_s: float, now_s: float) -> str:
    """Return `18:40`, `tomorrow 03:10` or `27 Nov 03:10`."""
    then, now = time.localtime(time_s), time.localtime(now_s)
    text = time.strftime("%H:%M", then)
    if then[:3] == now[:3]:
        return text
    if then[:3] == time.localtime(now_s + _DAY_S)[:3]:
        return f"tomorrow {text}"
    return f"{then.tm_mday} {time.strftime('%b', then)} {text}"


def when(time_s: float, now_s: float) -> str:
    """Return `18:40 (in 50 min)`."""
    if time_s <= now_s:
        return f"{clock(time_s, now_s)} ({span(now_s - time_s)} ago)"
    return f"{clock(time_s, now_s)} (in {span(time_s - now_s)})"


def limit_words(seconds: int | None) -> str:
    """Return a time limit as Slurm writes it: `4:00:00`; "no time limit"."""
    if seconds is None:
        return "no time limit"
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    clock_text = f"{hours}:{minutes:02}:{rest:02}"
    return f"{days}-{clock_text}" if days else clock_text


def counted(number: int, noun: str) -> str:
    """Return `1 node` or `2 nodes`."""
    return f"{number} {noun if number == 1 else noun + 's'}"


def amount(count: int, what: str) -> str:
    """Return `2 GPUs`, `1 GPU` or `64 GB` of a `Lack`'s resource."""
    if what == "memory":
        return f"{count / (1 << 30):.4g} GB" if count >= 1 << 30 else f"{count / (1 << 20):.4g} MB"
    if count == 1:
        what = what.replace("GPUs", "GPU").replace("CPUs", "CPU")
    return f"{count} {what}"


def listed(names: Sequence[str], most: int = 4) -> str:
    """Return `node1, node2 and 3 more`."""
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most} more"


def request(job: JobView) -> str:
    """Return what the job asks for: `1 node with 2 GPUs, 8 CPUs and 64 GB, 4:00:00, in gpu`."""
    shape = job.shape
    parts = [amount(one.count, gpu_words(one.kind)) for one in shape.gpus_per_node]
    parts += [f"{amount(one.count, gpu_words(one.kind))} a task" for one in shape.gpus_per_task]
    parts += [f"{amount(one.count, gpu_words(one.kind))} in all" for one in shape.gpus_total]
    parts.append(_cpus(shape))
    if shape.mem_per_node_bytes:
        parts.append(amount(shape.mem_per_node_bytes, "memory"))
    elif shape.mem_per_cpu_bytes:
        parts.append(f"{amount(shape.mem_per_cpu_bytes, 'memory')} a CPU")
    elif shape.mem_per_gpu_bytes:
        parts.append(f"{amount(shape.mem_per_gpu_bytes, 'memory')} a GPU")
    text = f"{_nodes(shape)} with {joined(parts)} for {limit_words(job.time_limit_s)}"
    text += f" in {job.partition}" if job.partition else ""
    text += f", features {job.need.features}" if job.need.features else ""
    if job.required_nodes:
        text += f", on {listed(job.required_nodes)}"
    return text + (", alone on its nodes" if shape.exclusive else "")


def _cpus(shape: Shape) -> str:
    if shape.cpus_per_gpu:
        return f"{amount(shape.cpus_per_gpu, 'CPUs')} a GPU"
    total = amount(shape.tasks * shape.cpus_per_task, "CPUs")
    return total if shape.nodes_most == 1 or shape.tasks == 1 else f"{total} in all"


def _nodes(shape: Shape) -> str:
    if shape.nodes_most is None and shape.tasks > 1:
        return f"{counted(shape.nodes_least, 'node')} or more"
    if shape.nodes_most is not None and shape.nodes_most > shape.nodes_least:
        return f"{shape.nodes_least} to {shape.nodes_most} nodes"
    return counted(shape.nodes_least, "node")


def joined(parts: Sequence[str]) -> str:
    """Return `a, b and c`."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def short_of(lacks: Iterable[Lack]) -> str:
    """Return what is missing: `1 GPU and 4 CPUs short`."""
    parts = [amount(one.asked - one.has, one.what) for one in lacks]
    return f"{joined(parts)} short" if parts else "other jobs are on it"


def nodes_needed(shape: Shape) -> str:
    """Return how many nodes a job needs, and room for how many tasks on them."""
    text = counted(shape.nodes_least, "node")
    return text if shape.tasks <= shape.nodes_least else f"{text} with room for {shape.tasks} tasks"
