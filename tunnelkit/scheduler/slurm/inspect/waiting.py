"""The cluster around a waiting job of Slurm."""

from __future__ import annotations

from collections.abc import Mapping

from tunnelkit.diagnosis.evidence.cluster import ClusterView
from tunnelkit.diagnosis.evidence.job import JobView
from tunnelkit.scheduler.sections import Section
from tunnelkit.scheduler.slurm.inspect.limits import limits_of

#: Runs if the job waits. $id: the job; $record: its record. At most five commands of Slurm.
SCRIPT = r"""
value=${record#*" Account="}
account=${value%%" "*}
value=${record#*" QOS="}
qos=${value%%" "*}
case $record in
*" Reason=Assoc"*|*" Reason=QOS"*|*" Reason=Max"*)
  section limits scontrol show assoc_mgr flags=assoc,qos "accounts=$account" "qos=$qos" ;;
esac
"""


def cluster_view(sections: Mapping[str, Section], job: JobView) -> ClusterView:
    """Return the cluster as the sections of SCRIPT describe it."""
    limits = sections.get("limits")
    if limits is None:
        return ClusterView()
    if limits.failure:
        return ClusterView(missing=(f"scontrol show assoc_mgr: {limits.failure}",))
    return ClusterView(limits=limits_of(limits.text, job))
