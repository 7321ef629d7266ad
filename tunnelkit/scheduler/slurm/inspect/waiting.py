"""The cluster around a waiting job of Slurm: five commands at most, and their parsers.

Source: man squeue, sinfo, scontrol, sprio, and what a real 22.05 prints. `sinfo -O` can't be
asked for a separator, but for a suffix of each field; size 0 is as wide as the value.
"""

from __future__ import annotations

from collections.abc import Mapping

from tunnelkit.diagnosis.evidence.cluster import (
    ClusterView,
    Limit,
    NodeView,
    PartitionView,
    PriorityPart,
    QueuedJob,
    RunningJob,
    Window,
)
from tunnelkit.diagnosis.evidence.job import JobView
from tunnelkit.scheduler.sections import Section
from tunnelkit.scheduler.slurm.inspect.limits import limits_of
from tunnelkit.scheduler.slurm.inspect.nodes import parse_nodes, parse_partitions
from tunnelkit.scheduler.slurm.inspect.queue import parse_queue
from tunnelkit.scheduler.slurm.inspect.windows import parse_priority, parse_windows

#: Runs if the job waits. $id: the job; $record: its record. At most five commands of Slurm.
#: A node is listed once for each of its partitions, so equal lines are sent once. Who is in front
#: and who has the nodes comes in one answer: jobs of other partitions may have the same nodes.
SCRIPT = r"""
unset SINFO_PARTITION
once='out=$("$@" 2>&1) || { code=$?; printf "%s\n" "$out"; exit $code; }
printf "%s\n" "$out" | sort -u'
fields='NodeList:0|,StateLong:0|,CPUsState:0|,Memory:0|,AllocMem:0|,Gres:0|,GresUsed:0|'
fields="$fields,Features:0|,User:0|,Timestamp:0|,Reason:0|"
section nodes sh -c "$once" sh sinfo -N -h -O "$fields"
section queue squeue -h -t PD,R,CF,CG,S -o '%t|%i|%u|%P|%Q|%S|%e|%C|%Y|%N|%q|%a|%r'
partitions=$(bounded scontrol show partition -o)
code=$?
printf '\n%s partitions\n%s\n%s-code %s\n' "$mark" "$partitions" "$mark" "$code"
section windows scontrol show reservation -o
field Account; account=$value
field QOS; qos=$value
field UserId; user=${value%%"("*}
field Partition; names=$value
# A partition may have a QOS of its own.
qos=$(printf '%s\n' "$partitions" | awk -v names=",$names," -v own="$qos" '
{ split($1, name, "=") }
index(names, "," name[2] ",") { for (at = 2; at <= NF; at++) if ($at ~ /^QoS=/ && $at != "QoS=N/A")
  own = own "," substr($at, 5) }
END { print own }')
# The accounts above the own one have limits, too, and are known by their records alone.
tree='out=$(scontrol show assoc_mgr -o flags=assoc,qos "qos=$1") ||
  { printf "%s\n" "$out"; exit 1; }
printf "%s\n" "$out" | awk -v user=" UserName=$2(" "
!/^ClusterName=/ || / UserName= / || index(\$0, user)"'
case $record in
*" Reason=Priority "*) section priority sprio -h -j "$id" -o '%Y|%S|%A|%F|%J|%P|%Q' ;;
*" Reason=Assoc"*|*" Reason=Max"*) section limits sh -c "$tree" sh "$qos" "$user" ;;
*" Reason=QOS"*)
  section limits scontrol show assoc_mgr flags=assoc,qos "accounts=$account" "qos=$qos" ;;
esac
"""

_COMMANDS = {
    "nodes": "sinfo",
    "queue": "squeue",
    "partitions": "scontrol show partition",
    "windows": "scontrol show reservation",
    "limits": "scontrol show assoc_mgr",
    "priority": "sprio",
}
#: Asked only for some reasons, so they may be absent.
_SOMETIMES = {"limits", "priority"}


def cluster_view(sections: Mapping[str, Section], job: JobView) -> ClusterView:
    """Return the cluster as the sections of SCRIPT describe it."""
    partitions: tuple[PartitionView, ...] = ()
    nodes: tuple[NodeView, ...] = ()
    queue: tuple[QueuedJob, ...] = ()
    running: tuple[RunningJob, ...] = ()
    limits: tuple[Limit, ...] = ()
    windows: tuple[Window, ...] = ()
    parts: tuple[PriorityPart, ...] = ()
    if (text := _answer(sections, "partitions")) is not None:
        partitions = parse_partitions(text)
    if (text := _answer(sections, "nodes")) is not None:
        nodes = parse_nodes(text, partitions)
    if (text := _answer(sections, "queue")) is not None:
        queue, running = parse_queue(text, but=job.job_id.partition("_")[0])
    if (text := _answer(sections, "windows")) is not None:
        windows = parse_windows(text)
    if (text := _answer(sections, "limits")) is not None:
        limits = limits_of(text, job, partitions)
    if (text := _answer(sections, "priority")) is not None:
        parts = parse_priority(text)
    missing = _missing(sections, nodes, partitions)
    return ClusterView(nodes, queue, running, limits, windows, missing, partitions, parts)


def _answer(sections: Mapping[str, Section], name: str) -> str | None:
    found = sections.get(name)
    return found.text if found is not None and found.code == 0 else None


def _missing(
    sections: Mapping[str, Section],
    nodes: tuple[NodeView, ...],
    partitions: tuple[PartitionView, ...],
) -> tuple[str, ...]:
    """Return what did not answer, and why. An empty list of nodes is no answer, either."""
    found = []
    for name, command in _COMMANDS.items():
        section = sections.get(name)
        if section is None and name not in _SOMETIMES:
            found.append(f"{command}: no answer")
        elif section is not None and section.failure and not _no_parts(name, section):
            found.append(f"{command}: {section.failure}")
        elif (name == "nodes" and not nodes) or (name == "partitions" and not partitions):
            found.append(f"{command}: its answer has no {name}")
    return tuple(found)


def _no_parts(name: str, section: Section) -> bool:
    """True if priorities have no parts here: the order of submission counts."""
    return name == "priority" and "priority/multifactor" in section.text
