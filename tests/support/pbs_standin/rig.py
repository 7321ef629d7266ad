"""The test's side: puts the programs there, and is the administrator."""

from __future__ import annotations

import json
import secrets
import shlex
from pathlib import Path
from typing import Any

from tests.support.pbs_programs import state as server
from tunnelkit import lab as tk_lab
from tunnelkit.lab import LabInfo
from tunnelkit.lab.layout import Layout

PROGRAMS = ("qsub", "qstat", "qdel", "qselect", "pbsnodes", "pbs_attach", "pbs_track", "qsig")


class StandIn:
    """One PBS server and its two nodes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        #: The ids of the first and second job after `reset`.
        self.first = self.second = ""

    def reset(self, **config: Any) -> None:
        """A fresh server without jobs. dialect: pbs or torque; history, broken_json, down:
        flags; started, scheduling: of the queue and the server; nodes: those in service;
        lingers: nobody hears for now that a job's processes are gone; lost_replies: how many of
        the next submits are answered by an error."""
        for file in self.root.iterdir():
            file.unlink()
        # All labs of a machine see each other's processes, and a job is known by its id there.
        last = secrets.randbelow(1_000_000)
        server.sequence(self.root).write_text(str(last))
        self.first, self.second = f"{last + 1}.login", f"{last + 2}.login"
        server.State(self.root).write_config({**server.DEFAULTS, **config})

    @property
    def config(self) -> dict[str, Any]:
        """As `reset` and `set` have made it."""
        return server.State(self.root).config

    def set(self, **config: Any) -> None:
        """Change some of that."""
        state = server.State(self.root)
        state.write_config({**state.config, **config})

    def jobs(self) -> dict[str, dict[str, Any]]:
        """What the server knows of each job, finished ones too."""
        with server.State(self.root).locked() as state:
            return state.jobs()

    def unfinished(self) -> list[str]:
        return [job_id for job_id, job in self.jobs().items() if job["job_state"] not in "FC"]

    def qdel(self, job_id: str, who: str = "root@login") -> None:
        """Delete a job, as an administrator."""
        with server.State(self.root).locked() as state:
            state.delete(job_id, who)

    def clear(self) -> None:
        """Delete all jobs."""
        self.set(lingers=False)
        for job_id in self.unfinished():
            self.qdel(job_id)


def install(info: LabInfo) -> StandIn:
    """Put the programs on the PATH of the lab's hosts."""
    root = info.dir / "pbs"
    root.mkdir(mode=0o700, exist_ok=True)
    for name in PROGRAMS:
        path = Layout(info.dir).bin / name
        path.write_text(f'#!/bin/sh\nexec {shlex.join(server.words(name, root))} "$@"\n')
        path.chmod(0o755)
    ways = {node: tk_lab.on(node, info.dir) for node in info.nodes}
    prefixes = {node: way[: way.index("/usr/bin/env")] for node, way in ways.items()}
    server.entries(root).write_text(json.dumps(prefixes))
    stand_in = StandIn(root)
    stand_in.reset()
    return stand_in
