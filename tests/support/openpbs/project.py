"""A project that uses a site through the real `tk`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, ClassVar

from tests.support.openpbs.site import Site
from tests.support.terminal import PATIENCE_S
from tests.support.tkrig import Project


class SiteProject(Project):
    """A project whose cluster is a site with OpenPBS."""

    def __init__(self, site: Site, base: Path) -> None:
        super().__init__(site.info, base)
        self.site = site

    canceller: ClassVar[str] = "qdel"
    node_environ: ClassVar[dict[str, str]] = {"PBS_ENVIRONMENT": "PBS_BATCH", "PBS_QUEUE": "workq"}

    def on_login(self, *argv: str) -> list[str]:
        return self.site.hosts["login"].argv(*argv, user="ann")

    def far(self, name: str) -> Path:
        """A file of the person's home on the cluster, as this machine sees it."""
        return self.site.home / name

    async def jobs(self) -> list[str]:
        """`ID STATE` of the project's unfinished jobs, in Slurm's words for it."""
        words = {"Q": "PENDING", "R": "RUNNING", "E": "COMPLETING", "H": "HELD"}
        return [
            f"{job['id']} {words.get(job['job_state'], job['job_state'])}"
            for job in self.site.pbs.jobs()
            if job["Job_Name"].startswith(f"tk-{self.dir.name}-")
        ]

    async def state(self, wanted: str) -> dict[str, Any]:
        """Wait until the session says that it is in that state; its status."""
        async with asyncio.timeout(PATIENCE_S):
            while (status := await self.status())["state"] != wanted:
                await asyncio.sleep(0.2)
        return status

    async def left(self) -> list[str]:
        # Sockets of agents lie on the nodes' own disks.
        find = ("sh", "-c", f"find /tmp -path '*/tk-{self.dir.name}-*' -type s")
        found = [f"{node}: {self.site.hosts[node].run(*find)}" for node in self.lab.nodes]
        return [*await super().left(), *(line for line in found if not line.endswith(": "))]
