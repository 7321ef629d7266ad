"""A real OpenPBS for tests: server, nodes, an ordinary user. Root on Linux, and a build of it."""

from tests.support.openpbs.site import Site, running_site, why_no_openpbs

__all__ = ["Site", "running_site", "why_no_openpbs"]
