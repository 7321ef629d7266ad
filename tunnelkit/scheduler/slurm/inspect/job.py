"""`scontrol show job -d -o ID` as a JobView. With SLURM_TIME_FORMAT=%s its times are Unix time.

Source: man scontrol, and what real 22.05 and 24.05 print.
"""

from __future__ import annotations

import contextlib
import re

from tunnelkit.diagnosis.evidence.job import GpuNeed, JobView, NodeNeed, Shape
from tunnelkit.errors import SchedulerError
from tunnelkit.model import JobState
from tunnelkit.scheduler.nodelist import expand
from tunnelkit.scheduler.slurm.duration import parse_duration
from tunnelkit.scheduler.slurm.gres import GPU_TYPE
from tunnelkit.scheduler.slurm.states import state_of

_ABSENT = {"", "N/A", "n/a", "(null)", "None", "Unknown"}
#: A key of the record; a value may hold blanks and `=`, but no ` Key=` of this list.
_KEYS = (
    "JobId ArrayJobId ArrayTaskId ArrayTaskThrottle HetJobId HetJobOffset HetJobIdSet JobName "
    "UserId GroupId MCS_label Priority Nice Account QOS WCKey JobState Reason FailedNode "
    "Dependency Requeue Restarts BatchFlag Reboot ExitCode DerivedExitCode RunTime TimeLimit "
    "TimeMin SubmitTime EligibleTime AccrueTime ResizeTime StartTime EndTime Deadline CronJob "
    "CrontabSpec PreemptEligibleTime PreemptTime SuspendTime SecsPreSuspend LastSchedEval "
    "Scheduler Partition AllocNode:Sid ReqNodeList ExcNodeList NodeList SchedNodeList "
    "BatchFeatures BatchHost StepMgrEnabled FedOrigin FedViableSiblings FedActiveSiblings "
    "NumNodes NumCPUs NumTasks CPUs/Task ReqB:S:C:T TRES ReqTRES AllocTRES Socks/Node "
    "NtasksPerN:B:S:C CoreSpec ThreadSpec JOB_GRES Nodes MinCPUsNode MinMemoryNode "
    "MinMemoryCPU MinMemoryTRES MinTmpDiskNode Features DelayBoot ClusterFeatures Prefer "
    "Reservation OverSubscribe Contiguous Licenses LicensesAlloc Network Exclusive Command "
    "SubmitLine WorkDir AdminComment SystemComment Comment Extra StdErr StdIn StdOut Power "
    "SegmentSize Switches BurstBuffer BurstBufferState CPU_min_freq CPU_max_freq Governor "
    "GresAllowTaskSharing GresEnforceBind GresOneTaskPerSharing KillOInInvalidDependent "
    "SpreadJob OOMKillStep CpusPerTres MemPerTres TresBind TresFreq TresPerJob TresPerNode "
    "TresPerSocket TresPerTask MailUser MailType NtasksPerTRES Container ContainerID "
    "SELinuxContext ResvPorts"
)
_RECORD = re.compile(r"^JobId=[0-9]+(?= |$)", re.MULTILINE)
#: Characters of a reason, which an administrator may have written.
_MOST_REASON = 1000
_KEY = re.compile(r"(?:^| )({})=".format("|".join(re.escape(key) for key in _KEYS.split())))
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)([KMGTP]?)")
#: Slurm's time limits are whole minutes.
_LEAST_LIMIT_S = 60
_UNITS = {"K": 10, "": 20, "M": 20, "G": 30, "T": 40, "P": 50}
#: NO_VAL, which Slurm's record of a whole array has for %a.
_NO_INDEX = "4294967294"
_INDEXES = re.compile(r"[0-9][0-9,:.-]*")
_GPU = re.compile(rf"(?:gres[:/])?gpu(?:[:/]({GPU_TYPE}))?(?:[:=]([0-9]+))?")


def fields(text: str) -> dict[str, str]:
    """Return the first record's fields; of a key that comes twice the first.

    Slurm prints a heterogeneous job's components, and an array's elements, as a record each."""
    records = [mark.start() for mark in _RECORD.finditer(text)]
    line = " ".join(text[: records[1] if len(records) > 1 else None].split("\n"))
    marks = list(_KEY.finditer(line))
    found: dict[str, str] = {}
    for at, mark in enumerate(marks):
        end = marks[at + 1].start() if at + 1 < len(marks) else len(line)
        found.setdefault(mark[1], line[mark.end() : end].strip())
    return found


def job_view(text: str) -> JobView | None:
    """Return the job; None if the text is no record of one."""
    found = fields(text)
    if not re.fullmatch(r"[0-9]+", found.get("JobId", "")):
        return None

    def value(key: str) -> str:
        text = found.get(key, "")
        return "" if text in _ABSENT else text

    state, _ = state_of(value("JobState"))
    if _is_back(found):
        state = JobState.PENDING
    code, signal = _codes(value("ExitCode"))
    start_s = _time(value("StartTime"))
    pending = state is JobState.PENDING
    return JobView(
        job_id=_id(found),
        state=state,
        native_state=value("JobState"),
        reason=value("Reason")[:_MOST_REASON] or None,
        name=value("JobName"),
        user=value("UserId").partition("(")[0],
        partition=value("Partition"),
        account=value("Account"),
        qos=value("QOS"),
        priority=_number(value("Priority")),
        restarts=_number(value("Restarts")) or 0,
        submit_s=_time(value("SubmitTime")),
        eligible_s=_time(value("EligibleTime")),
        start_s=None if pending else start_s,
        end_s=_time(value("EndTime")) if state is JobState.ENDED else None,
        expected_start_s=start_s if pending else None,
        expected_nodes=nodes_of(value("SchedNodeList")),
        time_limit_s=parse_duration(value("TimeLimit")),
        unlimited=value("TimeLimit") == "UNLIMITED",
        nodes_wanted=_number(value("NumNodes").partition("-")[0]) or 1,
        need=_need(found),
        licenses=value("Licenses"),
        required_nodes=nodes_of(value("ReqNodeList")),
        excluded_nodes=nodes_of(value("ExcNodeList")),
        dependency=value("Dependency"),
        reservation=value("Reservation"),
        nodes=nodes_of(value("NodeList")),
        exit_code=code,
        signal=signal,
        directory=value("WorkDir"),
        command=value("Command"),
        stdout_path=_log_path(value("StdOut")),
        stderr_path=_log_path(value("StdErr")),
        comment=value("Comment"),
        shape=_shape(found),
        raw_id=found["JobId"],
        derived_code=_codes(value("DerivedExitCode"))[0],
        elements=_elements(found) if pending else "",
        component=bool(value("HetJobId")),
        repeats=value("CronJob") == "Yes",
    )


def _is_back(found: dict[str, str]) -> bool:
    """True if Slurm clears a run away, after which the job is in the queue again: its record has
    that run's planned end, and no time that it ran."""
    if found.get("JobState") != "COMPLETING" or found.get("RunTime") != "00:00:00":
        return False
    begun_s, end_s = _time(found.get("StartTime", "")), _time(found.get("EndTime", ""))
    if begun_s is None or end_s is None:
        return found.get("EndTime") == "Unknown"
    return end_s - begun_s >= _LEAST_LIMIT_S


def nodes_of(text: str) -> tuple[str, ...]:
    """Return the names of a node list; none if it is malformed or absent."""
    if text in _ABSENT:
        return ()
    with contextlib.suppress(SchedulerError):
        return expand(text)
    return ()


def size_bytes(text: str) -> int | None:
    """Return the bytes of Slurm's `4G`, `500M` or `512` (MiB)."""
    match = _SIZE.match(text)
    return int(float(match[1]) * (1 << _UNITS[match[2]])) if match else None


def gpus_of(text: str) -> tuple[GpuNeed, ...]:
    """Return the GPUs of a request: `gres:gpu:2`, `gres/gpu:a100:1`, several by comma."""
    found = []
    for item in text.split(","):
        match = _GPU.fullmatch(item.strip().split("(")[0])
        if match:
            found.append(GpuNeed(int(match[2] or 1), match[1] or ""))
    return tuple(found)


def _need(found: dict[str, str]) -> NodeNeed:
    nodes = _number(found.get("NumNodes", "").partition("-")[0]) or 1
    cpus = max(
        _number(found.get("MinCPUsNode", "")) or 1,
        -(-(_number(found.get("NumCPUs", "").partition("-")[0]) or 1) // nodes),
    )
    memory = size_bytes(found.get("MinMemoryNode", ""))
    per_cpu = size_bytes(found.get("MinMemoryCPU", ""))
    if not memory and per_cpu:
        memory = per_cpu * cpus
    gpus = gpus_of(found.get("TresPerNode", ""))
    for key, share in (("TresPerJob", nodes), ("TresPerTask", 1)):
        if not gpus:
            gpus = tuple(
                GpuNeed(-(-one.count // share), one.kind) for one in gpus_of(found.get(key, ""))
            )
    on_node = sum(one.count for one in gpus)
    cpus = max(cpus, _per_gpu(found, "CpusPerTres")[0] * on_node)
    memory = memory or (_per_gpu(found, "MemPerTres")[0] << 20) * on_node
    features = found.get("Features", "")
    return NodeNeed(cpus, memory or None, gpus, "" if features in _ABSENT else features)


def _shape(found: dict[str, str]) -> Shape:
    least, _, most = found.get("NumNodes", "").partition("-")
    per_cpu = size_bytes(found.get("MinMemoryCPU", ""))
    per_node = size_bytes(found.get("MinMemoryNode", ""))
    tasks = _number(found.get("NumTasks", "")) or 1
    cpus = _number(found.get("NumCPUs", "").partition("-")[0]) or 1
    gpus_total = gpus_of(found.get("TresPerJob", ""))
    # Without --nodes the scheduler takes as many nodes as the tasks, CPUs and GPUs need.
    one_node = tasks == 1 and least == "1" and sum(one.count for one in gpus_total) <= 1
    nodes_most = _number(most) if most else (1 if one_node else None)
    overcommits = tasks > cpus  # --overcommit: tasks share the CPUs
    gpu_cpus, gpu_mib = _per_gpu(found, "CpusPerTres"), _per_gpu(found, "MemPerTres")
    by_gpu = gpu_cpus != (0, True) or gpu_mib != (0, True)
    # The components of a heterogeneous job start together, and this is one of them.
    is_part = found.get("HetJobId", "") not in _ABSENT
    return Shape(
        nodes_least=_number(least) or 1,
        nodes_most=nodes_most,
        tasks=cpus if overcommits else tasks,
        cpus_per_task=1
        if overcommits
        else _number(found.get("CPUs/Task", "")) or max(1, cpus // tasks),
        node_cpus=_number(found.get("MinCPUsNode", "")) or 1,
        tasks_per_node=_number(found.get("NtasksPerN:B:S:C", "").partition(":")[0]) or 0,
        mem_per_cpu_bytes=per_cpu or None,
        mem_per_node_bytes=per_node or None,
        all_memory=not per_cpu and not per_node and gpu_mib == (0, True),
        # Exclusive jobs have NO; of those that share CPUs it says YES or USER.
        exclusive=found.get("OverSubscribe") == "NO",
        gpus_per_node=gpus_of(found.get("TresPerNode", "")),
        gpus_per_task=gpus_of(found.get("TresPerTask", "")),
        gpus_total=gpus_total,
        cpus_per_gpu=gpu_cpus[0],
        mem_per_gpu_bytes=gpu_mib[0] << 20,
        unclear=is_part
        or not (gpu_cpus[1] and gpu_mib[1])
        or (overcommits and bool(gpus_of(found.get("TresPerTask", ""))))
        or (by_gpu and not _gpus_are_known(found, one_node=nodes_most == 1)),
    )


def _per_gpu(found: dict[str, str], key: str) -> tuple[int, bool]:
    """Return what is asked for by GPU, CPUs or MiB; 0 for nothing. False: it can't be read.

    It can't where kinds of GPUs differ in it: `gres/gpu:a100:8,gres/gpu:v100:4`."""
    text = found.get(key, "")
    if text in _ABSENT:
        return 0, True
    asked = gpus_of(text)
    if len(asked) != 1 or "," in text or not asked[0].count:
        return 0, False
    wanted = (*gpus_of(found.get("TresPerNode", "")), *gpus_of(found.get("TresPerTask", "")),
              *gpus_of(found.get("TresPerJob", "")))  # fmt: skip
    return asked[0].count, not asked[0].kind or all(one.kind == asked[0].kind for one in wanted)


def _gpus_are_known(found: dict[str, str], *, one_node: bool) -> bool:
    """Return True if the GPUs on each node, or of each task, are known."""
    by_place = gpus_of(found.get("TresPerNode", "")) or gpus_of(found.get("TresPerTask", ""))
    return bool(by_place or (one_node and gpus_of(found.get("TresPerJob", ""))))


def _id(found: dict[str, str]) -> str:
    task = found.get("ArrayTaskId", "")
    if re.fullmatch(r"[0-9]+", task) and found.get("ArrayJobId", "").isdigit():
        return f"{found['ArrayJobId']}_{task}"
    return found["JobId"]


def _log_path(path: str) -> str:
    """Return a log's path; "" for an array's own, where no element's index is filled in."""
    return "" if _NO_INDEX in path else path


def _elements(found: dict[str, str]) -> str:
    """Return the indexes of an array that are still one record: all of them wait."""
    text = found.get("ArrayTaskId", "").partition("%")[0]
    is_whole = _id(found) == found.get("ArrayJobId")
    return text if is_whole and _INDEXES.fullmatch(text) else ""


def _codes(text: str) -> tuple[int | None, int | None]:
    match = re.fullmatch(r"([0-9]+):([0-9]+)", text)
    return (int(match[1]), int(match[2])) if match else (None, None)


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else None


def _time(text: str) -> float | None:
    return float(text) if re.fullmatch(r"[0-9]{9,12}", text) else None
