"""The lab's Slurm: munged, slurmctld and one slurmd per node, run as the user of the lab.

Everything is said in configuration files and argv; Debian's own units, sockets
and directories are never touched. CPUs are only counted. Every node has 2 GPUs that
are character devices of the machine, so that Slurm hands out and counts them as it
would real ones.
"""

from __future__ import annotations

import os
import secrets
import socket
import stat
import subprocess
import time
from collections.abc import Mapping, Sequence

from tunnelkit.errors import TunnelkitError
from tunnelkit.lab.environment import user
from tunnelkit.lab.layout import LOGIN, NODES, LabInfo, Layout, write_private
from tunnelkit.lab.network import Network
from tunnelkit.lab.programs import find_program

GPUS = 2
#: Features of each node, for --constraint.
FEATURES = {"node1": "a100", "node2": "a100,nvlink"}
_MEM_MB = 8000
# Any character devices do; these exist on every Linux, and in containers.
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


def write_files(
    layout: Layout, network: Network, task_env: Mapping[str, Mapping[str, str]], info: LabInfo
) -> None:
    """Write slurm.conf and its companions. `task_env`: what jobs find set, by node.

    info: the CPUs of each node, and whether jobs are held to their memory.
    """
    (layout.dir / "munge").mkdir(mode=0o700)
    key = os.open(layout.dir / "munge" / "key", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(key, "wb") as file:
        file.write(secrets.token_bytes(128))
    for name in ("ctld", *NODES):
        (layout.spool / name).mkdir(mode=0o700)
    write_private(layout.slurm_conf, _slurm_conf(layout, network, info))
    write_private(layout.slurm / "gres.conf", _gres_conf())
    # The lab uses no cgroups, yet slurmd loads the plugin; v1 needs nothing of the system.
    write_private(layout.slurm / "cgroup.conf", "CgroupPlugin=cgroup/v1\n")
    write_private(layout.slurm / "task_prolog", _task_prolog(task_env), mode=0o700)


def daemons(layout: Layout) -> list[tuple[str, str, list[str]]]:
    """Name, host and argv of each daemon, in the order in which they start."""
    found = [("munged", LOGIN, _munged_argv(layout))]
    conf = str(layout.slurm_conf)
    found.append(("slurmctld", LOGIN, [find_program("slurmctld"), "-D", "-i", "-f", conf]))
    for node in NODES:
        argv = [find_program("slurmd"), "-D", "-f", conf, "-N", node]
        found.append((f"slurmd-{node}", node, argv))
    return found


def _munged_argv(layout: Layout) -> list[str]:
    own = layout.dir / "munge"
    return [
        find_program("munged"),
        "--foreground",
        # The socket is in a directory that is ours alone; munged wants it open to all.
        "--force",
        f"--socket={layout.munge_socket}",
        f"--key-file={own / 'key'}",
        f"--pid-file={own / 'pid'}",
        f"--seed-file={own / 'seed'}",
        f"--log-file={layout.log('munged')}",
        "--num-threads=2",
    ]


def _slurm_conf(layout: Layout, network: Network, info: LabInfo) -> str:
    me = user().pw_name
    here = socket.gethostname().partition(".")[0]
    controller = LOGIN if network.own_names else here
    parameters = ["NoCtldInAddrAny", "NoInAddrAny"] if network.slurm_bound else []
    # With it Slurm asks for names of either family, which are found also without a network.
    parameters += ["EnableIPv6"] if network.offline else []
    communication = f"CommunicationParameters={','.join(parameters)}\n" if parameters else ""
    nodes = "\n".join(
        f"NodeName={node} NodeHostname={node if network.own_names else here} "
        f"NodeAddr={network.slurm_address[node]} Port={network.slurm_port[node]} "
        f"CPUs={info.cpus} RealMemory={_MEM_MB} Gres=gpu:{GPUS} Feature={FEATURES[node]} "
        "State=UNKNOWN"
        for node in NODES
    )
    return f"""ClusterName=tklab
SlurmctldHost={controller}({network.slurm_address[LOGIN]})
SlurmctldPort={network.slurm_port[LOGIN]}
{communication}SlurmUser={me}
SlurmdUser={me}
AuthType=auth/munge
CredType=cred/munge
# A job that goes back into the queue waits until its credential has run out.
AuthInfo=socket={layout.munge_socket},cred_expire=10
StateSaveLocation={layout.spool}/ctld
SlurmdSpoolDir={layout.spool}/%n
SlurmctldPidFile={layout.spool}/ctld.pid
SlurmdPidFile={layout.spool}/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
TaskProlog={layout.slurm}/task_prolog
{_memory(info)}
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SwitchType=switch/none
MpiDefault=none
MailProg=/bin/true
SlurmdParameters=config_overrides
SelectType=select/cons_tres
GresTypes=gpu
ReturnToService=2
# A lab is small and its people impatient: look for startable jobs all the time,
# and give a cancelled job two seconds before KILL.
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0
KillWait=10
MinJobAge=3600
SlurmctldTimeout=30
SlurmdTimeout=30
TCPTimeout=2
MessageTimeout=10
InactiveLimit=0
{nodes}
# Jobs of `scavenge` go back into the queue when the others want their nodes.
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=gpu Nodes=ALL Default=YES DefaultTime=1:00:00 MaxTime=8:00:00 PriorityTier=10 State=UP
PartitionName=short Nodes=ALL MaxTime=10:00 PriorityTier=10 State=UP
PartitionName=scavenge Nodes=ALL MaxTime=8:00:00 PriorityTier=1 State=UP
"""


def _memory(info: LabInfo) -> str:
    """Return what Slurm does about memory: it measures each second and kills, without cgroups."""
    if not info.memory_limits:
        return "JobAcctGatherType=jobacct_gather/none\nSelectTypeParameters=CR_Core"
    return (
        "JobAcctGatherType=jobacct_gather/linux\nJobAcctGatherParams=OverMemoryKill\n"
        "JobAcctGatherFrequency=task=1\nSelectTypeParameters=CR_Core_Memory\n"
        f"DefMemPerCPU={_MEM_MB // info.cpus}"
    )


def _gres_conf() -> str:
    found = [path for path in _DEVICES if os.path.exists(path) and _is_char_device(path)]
    if len(found) < GPUS:
        raise TunnelkitError("the lab finds no devices to show as GPUs", hint="is /dev mounted?")
    files = ",".join(found[:GPUS])
    return f"AutoDetect=off\nName=gpu File={files}\n"


def _is_char_device(path: str) -> bool:
    return stat.S_ISCHR(os.stat(path).st_mode)


def _task_prolog(task_env: Mapping[str, Mapping[str, str]]) -> str:
    """slurmd reads `export NAME=value` lines from it: what a job gets from its node rather than
    from the shell that submitted it. The value is the rest of the line, so it needs no quotes."""
    cases = ""
    for node, env in task_env.items():
        lines = "".join(f"export {name}={value}\n" for name, value in env.items())
        cases += f"{node}) cat <<'END'\n{lines}END\n;;\n"
    return f'#!/bin/sh\ncase "$SLURMD_NODENAME" in\n{cases}esac\n'


def node_states(run: Sequence[str]) -> dict[str, str]:
    """State by node, from sinfo; empty if slurmctld can't be asked. `run`: argv prefix."""
    argv = [*run, find_program("sinfo"), "-h", "-N", "-o", "%N %T"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=15, check=False)
    except subprocess.TimeoutExpired:
        return {}
    if done.returncode:
        return {}
    return dict(line.split(maxsplit=1) for line in done.stdout.splitlines() if " " in line)


def cancel_all_jobs(run: Sequence[str], *, deadline_s: float = 6.0) -> None:
    """Cancel every job and wait until none is left. Best effort: what stays is killed after."""
    ends = time.monotonic() + deadline_s
    squeue = [*run, find_program("squeue"), "-h", "-o", "%i"]
    scancel = [*run, find_program("scancel"), "-u", user().pw_name]
    asked = False
    while time.monotonic() < ends:
        try:
            jobs = subprocess.run(squeue, capture_output=True, timeout=5, check=False)
            if jobs.returncode or not jobs.stdout.strip():
                return
            if not asked:
                subprocess.run(scancel, capture_output=True, timeout=5, check=False)
                asked = True
        except subprocess.TimeoutExpired:
            return
        time.sleep(0.1)
