"""The cluster around a waiting job of Slurm."""

from __future__ import annotations

from collections.abc import Mapping

from tunnelkit.diagnosis.evidence.cluster import ClusterView
from tunnelkit.diagnosis.evidence.job import JobView
from tunnelkit.scheduler.sections import Section

#: Runs if the job waits. $id: the job; $record: its record. At most five commands of Slurm.
SCRIPT = ""


def cluster_view(sections: Mapping[str, Section], job: JobView) -> ClusterView:
    """Return the cluster as the sections of SCRIPT describe it."""
    return ClusterView()
