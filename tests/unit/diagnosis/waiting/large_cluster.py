"""The answers of a large cluster, as text: nodes with GPUs, a long queue, many running jobs."""

from __future__ import annotations

MARK = "tk-mark"
NOW_S = 1_795_633_430

RECORD = (
    "JobId=900000 JobName=train UserId=kim(1000) GroupId=kim(1000) MCS_label=N/A Priority=5000 "
    "Nice=0 Account=lab QOS=normal JobState=PENDING Reason=Priority Dependency=(null) Requeue=1 "
    "Restarts=0 BatchFlag=1 ExitCode=0:0 RunTime=00:00:00 TimeLimit=08:00:00 TimeMin=N/A "
    f"SubmitTime={NOW_S - 7800} EligibleTime={NOW_S - 7800} StartTime={NOW_S + 90000} "
    "EndTime=Unknown Partition=gpu ReqNodeList=(null) ExcNodeList=n0003 NodeList= NumNodes=1 "
    "NumCPUs=16 NumTasks=1 CPUs/Task=16 NtasksPerN:B:S:C=0:0:*:* MinCPUsNode=16 "
    "MinMemoryNode=128G Features=a100|h100 OverSubscribe=OK Command=/home/kim/train.sh "
    "WorkDir=/home/kim TresPerNode=gres:gpu:4 "
)


def answer(nodes: int, pending: int, running: int) -> str:
    """The output of `tk why`'s script there."""
    sections = {
        "now": f"{NOW_S}",
        "job": RECORD,
        "nodes": "\n".join(_node(at) for at in range(nodes)),
        "queue": "\n".join(
            [*(_pending(at, nodes) for at in range(pending))]
            + [_running(at, nodes) for at in range(running)]
        ),
        "partitions": "\n".join(_partition(name, nodes) for name in ("gpu*", "long", "short")),
        "windows": f"ReservationName=m StartTime={NOW_S + 40000} EndTime={NOW_S + 50000} "
        f"Nodes=n[0000-{nodes // 10:04}] Flags=MAINT",
        "priority": "5000|0|100|400|500|4000|0",
    }
    return "".join(f"\n{MARK} {name}\n{text}\n{MARK}-code 0\n" for name, text in sections.items())


def _node(at: int) -> str:
    busy = 64 if at % 7 else 32
    used = 8 if at % 5 else 6
    feature = ("a100", "h100", "v100")[at % 3]
    state = "drained" if at % 50 == 0 else "mixed"
    reason = "bad dimm" if state == "drained" else "none"
    return (
        f"n{at:04}|{state}|{busy}/{64 - busy}/0/64|512000|{busy * 8000}|gpu:{feature}:8(S:0-1)|"
        f"gpu:{feature}:{used}(IDX:0-{used - 1})|{feature},ib,rack{at // 40}|root|{NOW_S - 9000}|"
        f"{reason}|"
    )


def _pending(at: int, nodes: int) -> str:
    planned = f"n{at % nodes:04}" if at < 500 else "(null)"
    start = f"{NOW_S + 600 + at * 10}" if at < 500 else "N/A"
    reason = ("Priority", "Priority", "Dependency", "QOSMaxJobsPerUserLimit")[at % 4]
    name = ("gpu", "long", "short", "gpu,long")[at % 4]
    first = f"PD|{100000 + at}|u{at % 300}|{name}|{20000 - at}|{start}"
    return f"{first}|N/A|16|{planned}|(null)|normal|lab|{reason}"


def _running(at: int, nodes: int) -> str:
    where = f"n{at % nodes:04}" if at % 9 else f"n[{at % nodes:04}-{min(at % nodes + 3, 9999):04}]"
    end = NOW_S + 60 + at * 7
    return (
        f"R|{50000 + at}|u{at % 300}|gpu|9000|{NOW_S - 100}|{end}|16|(null)|{where}|normal|lab|None"
    )


def _partition(name: str, nodes: int) -> str:
    return (
        f"PartitionName={name.rstrip('*')} MaxNodes=UNLIMITED MaxTime=2-00:00:00 MinNodes=0 "
        f"Nodes=n[0000-{nodes - 1:04}] PriorityTier=1 State=UP"
    )
