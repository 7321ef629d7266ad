"""Answers of squeue, sinfo and scontrol about a cluster; recorded on a real 22.05."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.diagnosis.evidence.cluster import ClusterView, GpuCount, Window
from tunnelkit.diagnosis.evidence.job import GpuNeed, JobView, Shape
from tunnelkit.model import JobState
from tunnelkit.scheduler.sections import Section
from tunnelkit.scheduler.slurm.inspect.inspector import SCRIPT
from tunnelkit.scheduler.slurm.inspect.job import fields, gpus_of, job_view
from tunnelkit.scheduler.slurm.inspect.nodes import (
    gpus_of_node,
    parse_nodes,
    parse_partitions,
    states_of,
)
from tunnelkit.scheduler.slurm.inspect.queue import parse_queue
from tunnelkit.scheduler.slurm.inspect.waiting import cluster_view
from tunnelkit.scheduler.slurm.inspect.windows import parse_priority, parse_windows

PARTITIONS = """\
PartitionName=gpu AllowGroups=ALL Default=YES MaxNodes=UNLIMITED MaxTime=08:00:00 MinNodes=0 \
LLN=NO Nodes=node[1-2] PriorityTier=10 State=UP TotalCPUs=8 TRES=cpu=8,mem=16000M,node=2
PartitionName=off AllowGroups=ALL Default=NO MaxNodes=3 MaxTime=UNLIMITED MinNodes=1 \
Nodes=node2 PriorityTier=1 State=DOWN TotalCPUs=4
"""
NODES = """\
node1|drained|0/0/4/4|8000|0|gpu:2|gpu:0|a100|root|1795633540|bad | dimm, ask ops|
node2|mixed-|2/2/0/4|8000|4000|gpu:a100:2(S:0-1)|gpu:a100:1(IDX:0)|a100,nvlink|Unknown|Unknown|none|
node2|mixed-|2/2/0/4|8000|4000|gpu:a100:2(S:0-1)|gpu:a100:1(IDX:0)|a100,nvlink|Unknown|Unknown|none|
"""
QUEUE = """\
PD|3|root|gpu|4294901757|1795634026|1795634626|2|node[1-2]|(null)|normal|lab|Resources
PD|11_[1-9%2]|kim|gpu,short|4294901749|1795642980|1795643580|1|node1|(null)|normal|lab|Priority
PD|8|kim|gpu|4294901752|N/A|N/A|99|(null)|(null)|normal|lab|PartitionConfig
R|1|root|gpu|4294901759|1795633426|1795634026|4|(null)|node1|debug|lab|None
CG|2|root|gpu|4294901758|1795633426|1795634026|2|(null)|node[1-2]|(null)||None
"""
RESERVATIONS = """\
ReservationName=m1 StartTime=1795635340 EndTime=1795638940 Duration=01:00:00 Nodes=node2 \
NodeCnt=1 CoreCnt=4 Features=(null) PartitionName=(null) Flags=MAINT,IGNORE_JOBS,SPEC_NODES \
TRES=cpu=4 Users=root Groups=(null) Accounts=(null) Licenses=(null) State=INACTIVE
ReservationName=l StartTime=1795635340 EndTime=1795638940 Nodes=(null) Flags=ANY_NODES
"""


def test_nodes_with_their_partitions_and_why_they_are_out() -> None:
    one, two = parse_nodes(NODES, parse_partitions(PARTITIONS))
    assert (one.name, one.partitions, one.states) == ("node1", {"gpu"}, {"drained"})
    assert (one.reason, one.reason_by, one.since_s) == (
        "bad | dimm, ask ops",
        "root",
        1795633540.0,
    )
    assert one.gpus == (GpuCount("", 2, 0),)
    assert (two.partitions, two.states) == ({"gpu", "off"}, {"mixed", "planned"})
    assert (two.cpus, two.cpus_idle, two.cpus_taken) == (4, 2, 2)
    assert (two.mem_bytes, two.mem_allocated_bytes) == (8000 << 20, 4000 << 20)
    assert two.gpus == (GpuCount("a100", 2, 1),)
    assert (two.features, two.reason, two.since_s) == ({"a100", "nvlink"}, "", None)


@pytest.mark.parametrize(
    ("total", "used", "gpus"),
    [
        ("gpu:a100:4(S:0-1)", "gpu:a100:3(IDX:0-2)", (GpuCount("a100", 4, 3),)),
        ("gpu:2", "gpu:(null):0(IDX:N/A)", (GpuCount("", 2, 0),)),
        ("gpu:2(S:0)", "gpu:2", (GpuCount("", 2, 2),)),
        ("gpu", "gpu:0", (GpuCount("", 1, 0),)),
        (
            "gpu:a100:2(S:0),gpu:v100:4(S:1),nvme:1K",
            "gpu:a100:1(IDX:0),gpu:v100:3(IDX:0,2-3),nvme:0",
            (GpuCount("a100", 2, 1), GpuCount("v100", 4, 3)),
        ),
        ("(null)", "gpu:0", ()),
        ("shard:8,nvme:2", "shard:0", ()),
    ],
)
def test_forms_of_gres(total: str, used: str, gpus: tuple[GpuCount, ...]) -> None:
    assert gpus_of_node(total, used) == gpus


@pytest.mark.parametrize(
    ("text", "states"),
    [
        ("idle", {"idle"}),
        ("idle+drain", {"idle", "drain"}),
        ("mixed-", {"mixed", "planned"}),
        ("down*", {"down", "not_responding"}),
        ("idle~", {"idle", "powered_down"}),
        ("MIXED+PLANNED", {"mixed", "planned"}),
        ("drained*", {"drained", "not_responding"}),
        ("", set()),
    ],
)
def test_states_with_flags(text: str, states: set[str]) -> None:
    assert states_of(text) == states


def test_who_waits_and_who_has_the_nodes() -> None:
    waiting, running = parse_queue(QUEUE, but="8")
    assert [one.job_id for one in waiting] == ["3", "11_[1-9%2]"]
    first, array = waiting
    assert (first.expected_nodes, first.expected_start_s) == (("node1", "node2"), 1795634026.0)
    assert (array.elements, array.partitions, array.user) == (9, ("gpu", "short"), "kim")
    assert [(one.job_id, one.nodes, one.cpus) for one in running] == [
        ("1", ("node1",), 4),
        ("2", ("node1", "node2"), 2),
    ]
    assert [(one.partition, one.qos, one.account) for one in running] == [
        ("gpu", "debug", "lab"),
        ("gpu", "", ""),
    ]


def test_partitions_and_reservations() -> None:
    gpu, off = parse_partitions(PARTITIONS)
    assert (gpu.nodes, gpu.tier, gpu.time_most_s, gpu.nodes_most, gpu.up) == (
        {"node1", "node2"},
        10,
        28800,
        None,
        True,
    )
    assert (off.time_most_s, off.nodes_most, off.nodes_least, off.up) == (None, 3, 1, False)
    assert parse_windows(RESERVATIONS) == (
        Window("m1", 1795635340.0, 1795638940.0, ("node2",), True, users=frozenset({"root"})),
    )


@pytest.mark.parametrize(
    ("flags", "rest", "partial", "magnetic", "users"),
    [
        ("SPEC_NODES", "Users=kim,lee Groups=(null) Accounts=(null)", False, False, "kim lee"),
        ("MAGNETIC", "Users=kim Groups=(null) Accounts=lab", False, True, ""),
        ("MAGNETIC", "Users=-kim Groups=(null) Accounts=(null)", False, True, ""),
        ("SPEC_NODES   NodeName=node2 CoreIDs=0-3", "Users=kim", True, False, "kim"),
    ],
)
def test_reservations_that_not_all_jobs_are_kept_out_of(
    flags: str, rest: str, partial: bool, magnetic: bool, users: str
) -> None:
    line = "ReservationName=r StartTime=1795635340 EndTime=1795638940 Nodes=node2 NodeCnt=1 "
    [found] = parse_windows(f"{line}CoreCnt=4 Flags={flags} TRES=cpu=4 {rest} Licenses=(null)")
    assert (found.partial, found.magnetic) == (partial, magnetic)
    assert found.users == set(users.split())


def test_parts_of_a_priority() -> None:
    parts = parse_priority("       531|         0|   12.0|   0|  31|  500|  0\n")
    assert [(one.name, one.value) for one in parts] == [
        ("age", 12),
        ("job size", 31),
        ("partition", 500),
    ]


def test_what_fails_is_missing_and_never_empty() -> None:
    sections = {
        "nodes": Section("", 124),
        "partitions": Section(PARTITIONS, 0),
        "windows": Section("No reservations in the system", 0),
        "priority": Section("...\nOnly 'priority/multifactor' is supported.", 1),
    }
    found = cluster_view(sections, JobView("1", JobState.PENDING, "PENDING"))
    assert found.missing == ("sinfo: no answer within 10 s", "squeue: no answer")
    assert found.nodes == () and found.partitions and found.windows == ()


def test_an_answer_without_nodes_is_missing() -> None:
    found = cluster_view({"nodes": Section("", 0)}, JobView("1", JobState.PENDING, "PENDING"))
    assert "sinfo: its answer has no nodes" in found.missing


def test_the_script_has_at_most_six_commands_of_slurm() -> None:
    """Two of the lines with a command are alternatives: each for another reason."""
    lines = SCRIPT.splitlines()
    asked = [line for line in lines if "section " in line or "scontrol show job" in line]
    words = ("sinfo", "squeue", "scontrol", "sprio")
    waiting = [line for line in asked if any(f" {word} " in line for word in words)]
    alternatives = [line for line in waiting if "sprio" in line or "assoc_mgr" in line]
    assert len(alternatives) == 2
    assert len([line for line in waiting if line not in alternatives]) + 1 <= 6


RECORD = (
    "JobId=7 JobName=j.sh UserId=root(0) JobState=PENDING Reason=Priority Restarts=0 "
    "TimeLimit=00:10:00 Partition=gpu ReqNodeList=(null) ExcNodeList=(null) NodeList= "
    "NumNodes={nodes} NumCPUs={cpus} NumTasks={tasks} CPUs/Task={each} ReqB:S:C:T=0:0:*:* "
    "NtasksPerN:B:S:C={per}:0:*:* CoreSpec=* MinCPUsNode={least} {memory} MinTmpDiskNode=0 "
    "Features=(null) OverSubscribe={share} Contiguous=0 Command=/j.sh Power= {gpus}"
)


WORDS = {
    "nodes": "1",
    "cpus": "1",
    "tasks": "1",
    "each": "1",
    "per": "0",
    "least": "1",
    "memory": "MinMemoryNode=0",
    "share": "OK",
}


def _shape(**changes: str) -> Shape:
    job = job_view(RECORD.format(**{**WORDS, "gpus": "", **changes}))
    assert job is not None
    return job.shape


def test_shapes_of_requests() -> None:
    assert _shape() == Shape(all_memory=True)
    assert _shape(cpus="3", each="3", least="3", gpus="TresPerNode=gres:gpu:2") == Shape(
        cpus_per_task=3, node_cpus=3, all_memory=True, gpus_per_node=(GpuNeed(2),)
    )
    spread = _shape(nodes="2", cpus="6", tasks="6")
    assert (spread.nodes_least, spread.nodes_most, spread.tasks) == (2, None, 6)
    fixed = _shape(nodes="2-2", cpus="2", tasks="2", share="NO", memory="MinMemoryCPU=100M")
    assert (fixed.nodes_most, fixed.exclusive, fixed.mem_per_cpu_bytes) == (2, True, 100 << 20)
    assert not fixed.all_memory
    tasks = _shape(nodes="2", tasks="4", per="2", gpus="TresPerTask=gres/gpu:a100:1")
    assert (tasks.tasks_per_node, tasks.gpus_per_task) == (2, (GpuNeed(1, "a100"),))


def test_a_heterogeneous_job_is_judged_by_its_first_component() -> None:
    first = RECORD.format(**WORDS, gpus="").replace("JobName", "HetJobId=7 HetJobOffset=0 JobName")
    second = first.replace("JobId=7 ", "JobId=8 ", 1) + " TresPerNode=gres:gpu:4 Licenses=matlab:1"
    job = job_view(f"{first}\n{second}\n")
    assert job is not None and job.job_id == "7" and job.component
    assert (job.shape.gpus_per_node, job.need.gpus, job.licenses) == ((), (), "")
    assert job.shape.unclear


def test_gpus_in_all_may_be_on_several_nodes() -> None:
    assert _shape(gpus="TresPerJob=gres:gpu:8").nodes_most is None
    assert _shape(gpus="TresPerJob=gres:gpu:8", nodes="1-1").nodes_most == 1
    assert _shape(gpus="TresPerJob=gres:gpu:1").nodes_most == 1


def test_tasks_that_share_a_cpu_ask_for_no_more_cpus() -> None:
    """sbatch -N1 -n100 --overcommit."""
    shape = _shape(nodes="1-1", tasks="100", cpus="1")
    assert (shape.tasks, shape.cpus_per_task, shape.unclear) == (1, 1, False)
    assert _shape(nodes="1-1", tasks="9", gpus="TresPerTask=gres:gpu:1").unclear


@pytest.mark.parametrize("name", ["gres:gpu", "gres/gpu"])
def test_requests_by_gpu(name: str) -> None:
    asked = f"CpusPerTres={name}:64 MemPerTres={name}:1024 TresPerNode=gres:gpu:2"
    shape = _shape(gpus=asked, memory="MinMemoryTRES=0")
    assert (shape.cpus_per_gpu, shape.mem_per_gpu_bytes) == (64, 1024 << 20)
    assert not shape.all_memory and not shape.unclear
    job = job_view(RECORD.format(**WORDS, gpus=asked))
    assert job is not None and (job.need.cpus, job.need.mem_bytes) == (128, 2048 << 20)


@pytest.mark.parametrize(
    ("gpus", "unclear"),
    [
        ("CpusPerTres=gres/gpu:4 TresPerTask=gres/gpu:1", False),
        ("CpusPerTres=gres/gpu:a100:4 TresPerNode=gres/gpu:a100:1", False),
        ("CpusPerTres=gres/gpu:4 TresPerJob=gres/gpu:1", False),
        ("CpusPerTres=gres/gpu:4 TresPerJob=gres/gpu:2", True),
        ("CpusPerTres=gres/gpu:a100:4 TresPerNode=gres/gpu:1", True),
        ("CpusPerTres=gres/gpu:a100:4,gres/gpu:v100:8 TresPerNode=gres/gpu:1", True),
        ("MemPerTres=gres/gpu:some TresPerNode=gres/gpu:1", True),
        ("MemPerTres=gres/gpu:4 TresPerSocket=gres/gpu:1", True),
        ("CpusPerTres=(null) TresPerNode=gres/gpu:1", False),
    ],
)
def test_requests_by_gpu_that_cant_be_added_up(gpus: str, unclear: bool) -> None:
    assert _shape(gpus=gpus).unclear is unclear


def test_requests_by_gpu_of_gpus_that_may_be_spread() -> None:
    gpus = "CpusPerTres=gres/gpu:4 TresPerJob=gres/gpu:2"
    assert _shape(gpus=gpus, nodes="2", tasks="2").unclear


#: With every key that scontrol 24.05 and 25.05 print, optional ones too, in their order.
FULL_RECORD = (
    "JobId=1003 ArrayJobId=1000 ArrayTaskId=3 ArrayTaskThrottle=4 HetJobId=1003 HetJobOffset=0 "
    "HetJobIdSet=1003-1004 JobName=train UserId=kim(1000) GroupId=kim(1000) MCS_label=N/A "
    "Priority=10 Nice=0 Account=lab QOS=normal WCKey=* JobState=PENDING Reason=Priority "
    "FailedNode=n7 Dependency=(null) Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0 "
    "DerivedExitCode=0:0 RunTime=00:00:00 TimeLimit=01:00:00 TimeMin=N/A SubmitTime=1795633426 "
    "EligibleTime=1795633426 AccrueTime=1795633426 ResizeTime=1795633427 StartTime=1795634000 "
    "EndTime=1795637600 Deadline=N/A CronJob=Yes CrontabSpec=*/5 * * * * "
    "PreemptEligibleTime=1795634000 PreemptTime=None SuspendTime=None SecsPreSuspend=0 "
    "LastSchedEval=1795633500 Scheduler=Backfill:* Partition=gpu AllocNode:Sid=login:1 "
    "ReqNodeList=n[1-2] ExcNodeList=n9 NodeList= SchedNodeList=n1 BatchFeatures=a100 BatchHost=n1 "
    "StepMgrEnabled=Yes FedOrigin=a FedViableSiblings=a,b FedActiveSiblings=a "
    "NumNodes=1-1 NumCPUs=4 NumTasks=1 CPUs/Task=4 ReqB:S:C:T=0:0:*:* ReqTRES=cpu=4,gres/gpu=1 "
    "AllocTRES=(null) Socks/Node=* NtasksPerN:B:S:C=0:0:*:* ThreadSpec=2 MinCPUsNode=4 "
    "MinMemoryTRES=0 MinTmpDiskNode=0 Features=a100 DelayBoot=00:00:00 ClusterFeatures=fast "
    "Prefer=nvlink Reservation=r1 OverSubscribe=NO Contiguous=0 Licenses=matlab:1 "
    "LicensesAlloc=matlab:1 Network=(null) Exclusive=USER Command=/h/train.sh "
    "SubmitLine=sbatch --gpus=1 train.sh WorkDir=/h AdminComment=x y  SystemComment=z  "
    "Comment=mine, all  Extra=e  StdErr=/h/s.err StdIn=/dev/null StdOut=/h/s.out Power= "
    "Switches=1@00:05:00 BurstBuffer=#BB x BurstBufferState=staged CPU_min_freq=Low "
    "CPU_max_freq=High Governor=Performance GresAllowTaskSharing=Yes,SpreadJob=Yes OOMKillStep=1 "
    "CpusPerTres=gres/gpu:4 MemPerTres=gres/gpu:1024 TresBind=gres/gpu:closest "
    "TresFreq=gpu:high TresPerJob=gres/gpu:1 TresPerNode=gres/gpu:1 TresPerSocket=gres/gpu:1 "
    "TresPerTask=gres/gpu:1 MailUser=kim MailType=END NtasksPerTRES=1 Container=/c "
    "ContainerID=c1 SELinuxContext=user_t ResvPorts=6000-6001\n"
)


def test_no_key_is_part_of_the_value_before_it() -> None:
    job = job_view(FULL_RECORD)
    assert job is not None
    assert (job.job_id, job.step_id, job.repeats) == ("1000_3", "1003", True)
    assert (job.reason, job.name) == ("Priority", "train")
    endless = job_view(FULL_RECORD.replace("TimeLimit=01:00:00", "TimeLimit=UNLIMITED"))
    assert endless is not None and (endless.time_limit_s, endless.unlimited) == (None, True)
    assert (job.time_limit_s, job.unlimited) == (3600, False)
    assert (job.command, job.directory, job.comment) == ("/h/train.sh", "/h", "mine, all")
    assert (job.stdout_path, job.stderr_path) == ("/h/s.out", "/h/s.err")
    assert (job.licenses, job.reservation, job.partition) == ("matlab:1", "r1", "gpu")
    assert (job.required_nodes, job.excluded_nodes, job.expected_nodes) == (
        ("n1", "n2"), ("n9",), ("n1",),
    )  # fmt: skip
    assert (job.submit_s, job.expected_start_s) == (1795633426, 1795634000)
    assert (job.need.gpus, job.need.features) == ((GpuNeed(1),), "a100")
    shape = job.shape
    assert (shape.exclusive, shape.cpus_per_task, shape.node_cpus) == (True, 4, 4)
    assert shape.gpus_per_node == shape.gpus_per_task == shape.gpus_total == (GpuNeed(1),)


@pytest.mark.parametrize("key", re.findall(r"(?<= )[A-Z][\w/:]*(?==)", FULL_RECORD))
def test_each_key_ends_the_value_before_it(key: str) -> None:
    assert key in fields(FULL_RECORD)


_LINES = st.text(st.sampled_from("n1|/:=,()[]-+*%N 0123456789abgpu\n\x00é٣"), max_size=300)


@given(_LINES | st.text(max_size=200))
def test_no_text_is_too_strange(text: str) -> None:
    parse_nodes(text, parse_partitions(text))
    parse_queue(text)
    parse_windows(text)
    parse_priority(text)
    states_of(text)
    gpus_of_node(text, text)


@given(st.lists(st.tuples(st.sampled_from(["PD", "R", "CG"]), *[_LINES] * 12), max_size=5))
def test_no_row_is_too_strange(rows: list[tuple[str, ...]]) -> None:
    text = "\n".join("|".join(row) for row in rows)
    parse_queue(text)
    parse_nodes(text)


@given(st.dictionaries(st.sampled_from(["nodes", "queue", "partitions", "windows"]), _LINES))
def test_any_answer_gives_a_view(texts: dict[str, str]) -> None:
    sections = {name: Section(text, 0) for name, text in texts.items()}
    found = cluster_view(sections, JobView("1", JobState.PENDING, "PENDING"))
    assert isinstance(found, ClusterView)


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("gres/gpu:2080ti:1", (GpuNeed(1, "2080ti"),)),
        ("gres:gpu:1g.10gb:2", (GpuNeed(2, "1g.10gb"),)),
        ("gres/gpu:3090:4", (GpuNeed(4, "3090"),)),
        ("gres/gpu:2080ti", (GpuNeed(1, "2080ti"),)),
        ("gres/gpu:4", (GpuNeed(4),)),
        ("gres/gpu", (GpuNeed(1),)),
    ],
)
def test_types_of_gpus_that_begin_with_a_digit(text: str, gpus: tuple[GpuNeed, ...]) -> None:
    assert gpus_of(text) == gpus
