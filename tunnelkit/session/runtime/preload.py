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
    "tunnelkit.session.agent.tls_certificate",
    "tunnelkit.session.handlers.attach",
    "tunnelkit.session.handlers.console",
    "tunnelkit.session.handlers.interrupt",
    "tunnelkit.session.handlers.jobs.start_sooner",
    "tunnelkit.session.handlers.jobs.top",
    "tunnelkit.session.handlers.jobs.why",
    "tunnelkit.session.handlers.pdb_text",
    "tunnelkit.session.handlers.ranks",
    "tunnelkit.session.logs.stream",
    "tunnelkit.session.simulate.check",
    "tunnelkit.session.submit.send",
    "tunnelkit.session.submit.watch",
    "tunnelkit.session.top.shared",
    "tunnelkit.session.why.end_line",
)
_PBS = (
    "tunnelkit.scheduler.pbs.batch_scripts",
    "tunnelkit.scheduler.pbs.inspect.inspector",
    "tunnelkit.scheduler.pbs.script_options",
)
#: By the scheduler's name, what it needs late. The session has loaded its adapter and link by then.
OF_SCHEDULER = {
    "slurm": (
        "tunnelkit.scheduler.slurm.batch_scripts",
        "tunnelkit.scheduler.slurm.inspect.inspector",
        "tunnelkit.scheduler.slurm.script_options",
    ),
    "kubernetes": (
        "tunnelkit.mirror.watch.shared_source",
        "tunnelkit.session.files.pod_files",
        "tunnelkit.session.files.pod_mirrors",
        "tunnelkit.session.job.pod_diagnosis",
    ),
    "pbs": _PBS,
    "torque": _PBS,
}


async def preload(scheduler: str = "", *, after_s: float = QUIET_S) -> None:
    """Import them one after the other, in a thread: an F5 in that moment is not held up."""
    await asyncio.sleep(after_s)
    for name in (*MODULES, *OF_SCHEDULER.get(scheduler, ())):
        try:
            await asyncio.to_thread(importlib.import_module, name)
        except Exception:  # tk is being upgraded: the command that needs the module fails
            log.exception("%s could not be imported", name)
    log.info("all modules that this session may need are loaded")
