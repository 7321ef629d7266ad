"""A real Kubernetes for tests: its administrator, its members, its parts and its network."""

from tests.support.kubernetes.rig import Member, Rig, running_rig, why_no_rig

__all__ = ["Member", "Rig", "running_rig", "why_no_rig"]
