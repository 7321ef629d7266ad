"""`tk down` after a killed session: find what it left on the cluster, and end it."""

from __future__ import annotations

import asyncio
import contextlib

from tunnelkit.errors import AllocationError, NotPermitted, TunnelkitError
from tunnelkit.link.base import LinkSetup, Prompter
from tunnelkit.model import job_words
from tunnelkit.mount.mounts import umount_all
from tunnelkit.session.agent.client import AgentClient, AgentGone
from tunnelkit.session.allocation.allocated import Allocated, AllocatedJob
from tunnelkit.session.allocation.manager import AllocationManager
from tunnelkit.session.backends.registry import choose
from tunnelkit.session.job.job import NoWatcher
from tunnelkit.session.runtime.launch_spec import LaunchSpec
from tunnelkit.session.runtime.paths import (
    SessionPaths,
    hold_lock,
    job_name,
    patient_logins,
    state_root,
)


async def sweep(launch: LaunchSpec, paths: SessionPaths, prompter: Prompter | None = None) -> str:
    """End the job or agent of a session whose daemon is gone; return what was done.

    prompter: for questions if the connection must be made again.
    """
    paths.make()  # a restart of the laptop empties the runtime directory
    with hold_lock(paths):
        await umount_all(state_root(), paths.id)
        return await _sweep(launch, paths, prompter)


async def _sweep(launch: LaunchSpec, paths: SessionPaths, prompter: Prompter | None) -> str:
    settings = launch.settings
    backend = choose(settings)
    setup = LinkSetup(
        paths.link_dir,
        prompter,
        asks_nodes=lambda: cluster.asks_nodes,
        patient_logins=patient_logins(),
    )
    link = backend.make_link(settings, setup)
    cluster = AllocationManager(
        link,
        settings,
        backend,
        name=job_name(settings.project_dir, paths.id),
        say=lambda text: None,
        cancelled=paths.cancelled,
        wait_link=link.open,
        attach_job=launch.attach_job,
    )
    try:
        await link.open()
        await cluster.prepare()
        if launch.attach_job is not None:
            what = await _leave(cluster, launch, launch.attach_job)
        elif cluster.job is None:
            what = await _end_agent(await cluster.obtain(launch.node, NoWatcher()))
        else:
            ended = await cluster.job.cancel()
            what = f"{', '.join(map(job_words, ended))} cancelled" if ended else "nothing was left"
    finally:
        await link.close()
    _remove_sockets(paths)
    paths.launch.unlink(missing_ok=True)
    return f"the session was killed; {what}"


def _remove_sockets(paths: SessionPaths) -> None:
    """Remove the sockets of a killed daemon: no process listens there any more."""
    for directory in (paths.runtime, paths.link_dir):
        for path in directory.iterdir():
            if path.is_socket():
                path.unlink(missing_ok=True)


async def _leave(cluster: AllocationManager, launch: LaunchSpec, job_id: str) -> str:
    """End the agent in a job that the user submitted; the job itself goes on."""
    own: list[str] = []
    if cluster.job is not None:
        with contextlib.suppress(NotPermitted):  # tk makes none without the right to list them
            own = await cluster.job.cancel()
    if own:
        return f"{', '.join(map(job_words, own))} cancelled"
    try:
        allocated = await cluster.look_at(job_id, launch.node)
    except AllocationError:
        if cluster.job is None:
            raise
        return f"{job_words(job_id)} is over"
    if cluster.setup.backend.brings_agent:
        return await _leave_pods(cluster, allocated, job_id)
    if not await allocated.has_agent():
        return f"nothing of it was left in {job_words(job_id)}"
    return f"{await _end_agent(allocated)}; {job_words(job_id)} goes on"


async def _leave_pods(cluster: AllocationManager, allocated: AllocatedJob, job_id: str) -> str:
    """End the agents that the routes reach; one that is not there is not started."""
    allocated.may_start = False
    try:
        what = await _end_agent(allocated)
    except AgentGone:
        what = "no agent was left"
    await cluster.leave()
    return f"{what}; {job_id} goes on"


async def _end_agent(allocated: Allocated) -> str:
    client = AgentClient(
        allocated.open_stream, on_channel=lambda channel, header: channel.close(), notices={}
    )
    await client.connect()
    with contextlib.suppress(TunnelkitError, TimeoutError):
        async with asyncio.timeout(10.0):
            await client.call("shutdown", reason="tk down")
    await client.close("tk down")
    return "its agent was ended"
