"""Imports what most sessions need late or never, once the session is quiet.

`tk up` does not wait for these modules. A session that runs must have them all the same: after an
upgrade of tk their files are another version's.
"""

from __future__ import annotations

import asyncio
import importlib
import logging

log = logging.getLogger("tunnelkit.session")

#: After `tk up` the user most likely syncs and starts a program.
QUIET_S = 5.0
MODULES = (
    "tunnelkit.diagnosis.ended.rules",
    "tunnelkit.diagnosis.running.rules",
    "tunnelkit.diagnosis.waiting.rules",
    "tunnelkit.link.openssh.link",
    "tunnelkit.scheduler.slurm.adapter",
    "tunnelkit.scheduler.slurm.inspect.inspector",
    "tunnelkit.scheduler.pbs.torque",
    "tunnelkit.scheduler.pbs.inspect.inspector",
    "tunnelkit.link.kube.link",
    "tunnelkit.scheduler.kube.adapter",
    "tunnelkit.scheduler.pbs.script_options",
    "tunnelkit.scheduler.slurm.script_options",
    "tunnelkit.session.agent.pod_agent",
    "tunnelkit.session.agent.tls_certificate",
    "tunnelkit.session.handlers.jobs.start_sooner",
    "tunnelkit.session.handlers.jobs.top",
    "tunnelkit.session.handlers.jobs.why",
    "tunnelkit.session.logs.stream",
    "tunnelkit.session.simulate.check",
    "tunnelkit.session.submit.send",
    "tunnelkit.session.submit.watch",
    "tunnelkit.session.top.shared",
    "tunnelkit.session.why.end_line",
)


async def preload(after_s: float = QUIET_S) -> None:
    """Import `MODULES` one after the other, in a thread: an F5 in that moment is not held up."""
    await asyncio.sleep(after_s)
    for name in MODULES:
        try:
            await asyncio.to_thread(importlib.import_module, name)
        except Exception:  # tk is being upgraded: the command that needs the module fails
            log.exception("%s could not be imported", name)
