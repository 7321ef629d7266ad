"""`tk up` and `tk down`."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Annotated

from tunnelkit.cli.completion import options
from tunnelkit.cli.lazy_typer import typer
from tunnelkit.cli.terminal import kept_notice
from tunnelkit.cli.terminal.output import note, paint, say
from tunnelkit.cli.views.status import printable
from tunnelkit.text_format import shown

if TYPE_CHECKING:
    from tunnelkit.config.schema import Settings
    from tunnelkit.session.runtime.control_answers import AttachAnswer
    from tunnelkit.session.runtime.launch_spec import LaunchSpec
    from tunnelkit.session.runtime.paths import SessionPaths
    from tunnelkit.session.runtime.status import SessionStatus

#: A killed process has let go of its lock by then.
_KILLED_S = 2.0
_UP_HELP = """Get the node: connect, allocate, mirror, forward. Returns when all of it is ready.

    tk up                          whichever node the scheduler gives
    tk up node4 --gpus 1 --cpus 2  that node
    tk up --nodes 2 --gpus 4       two nodes, four GPUs on each
    tk up --time 2:00:00 --partition gpu
    tk up --attach-job 4711        a job that you made: salloc, sbatch, qsub
    tk up ml-dev-env               Kubernetes: a pod; tk down leaves it
    tk up statefulset/train        Kubernetes: all pods of one owner
    tk up --image IMAGE --gpus 1   Kubernetes: a pod that tk makes and ends
    tk up -f job.yaml              Kubernetes: your manifest, made and ended

What is not given comes from tunnelkit.toml and the profile: tk config show.

Called again, it tells the state of what is up, or takes over what a killed
session left behind.
"""


def up(
    node: Annotated[str | None, options.node_argument()] = None,
    nodes: Annotated[int | None, options.text_option("N", "How many nodes.")] = None,
    gpus: Annotated[int | None, options.text_option("N", "GPUs a node.")] = None,
    cpus: Annotated[int | None, options.text_option("N", "CPUs a node.")] = None,
    mem: Annotated[str | None, options.text_option("SIZE", "Memory a node, such as 16G.")] = None,
    time: Annotated[str | None, options.text_option("TIME", "Time limit, such as 2:00:00.")] = None,
    partition: Annotated[str | None, options.partition_option()] = None,
    account: Annotated[str | None, options.text_option("NAME", "Account to charge.")] = None,
    qos: Annotated[str | None, options.text_option("NAME", "Quality of service.")] = None,
    constraint: Annotated[str | None, options.text_option("LIST", "Node features: a100.")] = None,
    reservation: Annotated[str | None, options.text_option("NAME", "Reservation to use.")] = None,
    exclusive: Annotated[
        bool | None, typer.Option("--exclusive", help="Share the nodes with nobody.")
    ] = None,
    requeue: Annotated[bool | None, options.requeue_option()] = None,
    attach_job: Annotated[str | None, options.attach_job_option()] = None,
    selector: Annotated[str | None, options.selector_option()] = None,
    container: Annotated[str | None, options.container_option()] = None,
    image: Annotated[str | None, options.pod_image_option()] = None,
    manifest: Annotated[str | None, options.manifest_option()] = None,
    queue: Annotated[str | None, options.queue_option()] = None,
    profile: Annotated[str | None, options.profile_option()] = None,
    login: Annotated[str | None, options.login_option()] = None,
    link: Annotated[str | None, options.link_option()] = None,
    scheduler: Annotated[str | None, options.scheduler_option()] = None,
    take_over: Annotated[bool, options.take_over_option()] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the status as JSON.")] = False,
) -> None:
    """Bring the session up; the help text is `_UP_HELP`."""
    from tunnelkit.cli.terminal.context import settings

    wanted = settings(
        profile=profile,
        cluster__login=login,
        cluster__link=link,
        cluster__scheduler=scheduler,
        cluster__container=container,
        allocation__nodes=nodes,
        allocation__gpus=gpus,
        allocation__cpus=cpus,
        allocation__mem=mem,
        allocation__time=time,
        allocation__partition=partition,
        allocation__account=account,
        allocation__qos=qos,
        allocation__constraint=constraint,
        allocation__reservation=reservation,
        allocation__exclusive=exclusive,
        allocation__requeue=requeue,
        allocation__image=image,
        allocation__manifest=None if manifest is None else os.path.abspath(manifest),
        allocation__queue=queue,
    )
    given = selector or container or image or manifest or queue
    node, attach_job = _place(wanted, node, attach_job, selector, for_kube=given is not None)
    _bring_up(wanted, node, attach_job, take_over=take_over, as_json=as_json)


up.__doc__ = _UP_HELP


def _place(
    wanted: Settings, node: str | None, job: str | None, selector: str | None, *, for_kube: bool
) -> tuple[str | None, str | None]:
    """Return the node to ask for and the job to use, checked; pods count as jobs."""
    from tunnelkit.errors import UsageError
    from tunnelkit.model import check_host, check_job_id

    if wanted.cluster.is_kubernetes:
        from tunnelkit.session.backends.kubernetes import choose_pods

        return None, choose_pods(wanted, node or job, selector)
    if for_kube:
        raise UsageError(
            "--selector, --container, --image, --file and --queue are for Kubernetes",
            hint="tk init --kube sets a directory up for it; a queue of PBS: --partition NAME",
        )
    if wanted.allocation.queue:
        raise UsageError(
            f"[allocation] queue = {wanted.allocation.queue!r} is for Kueue on Kubernetes",
            hint='a queue of PBS, or a partition: partition = "NAME" under [allocation]',
        )
    if node is not None:
        check_host(node)
    if job is not None:
        check_job_id(job)
    return node, job


def _bring_up(
    wanted: Settings, node: str | None, attach_job: str | None, *, take_over: bool, as_json: bool
) -> None:
    from tunnelkit.cli.terminal.context import run
    from tunnelkit.session.runtime.blocking_client import is_alive
    from tunnelkit.session.runtime.launch_spec import LaunchSpec
    from tunnelkit.session.runtime.paths import session_paths

    wanted.require_cluster()
    again = is_alive(session_paths(wanted.project_dir))
    status = run(_up(LaunchSpec(wanted, node, take_over, attach_job)))
    _tell_editor(wanted, status)
    if as_json:
        import json

        say(json.dumps(status, indent=2))
    else:
        say(ready_line(status))
        for line in kept_notice.lines():
            note(f"  {line}")
        if attach_job is not None and _enter_standing(wanted, attach_job):
            return
        if sys.stderr.isatty() and not again:
            note("next: `tk loop python FILE`, then press F5")


def _enter_standing(wanted: Settings, wanted_job: str) -> bool:
    """Have F5 enter a program that stands at an exception in the job; False if none does."""
    from tunnelkit.cli.terminal.context import run
    from tunnelkit.errors import TunnelkitError
    from tunnelkit.session.runtime import control_client
    from tunnelkit.session.runtime.control_calls import Attach
    from tunnelkit.session.runtime.paths import session_paths

    async def attach() -> AttachAnswer:
        async with control_client.connect(session_paths(wanted.project_dir)) as session:
            return await session.call(Attach(standing=True))

    try:
        answer = run(attach())
    except TunnelkitError as error:
        note(f"  {error.one_line()}")
        return False
    if "attached" not in answer:
        return False
    rank = "" if answer["rank"] is None else f"rank {answer['rank']}, "
    where = shown(f"{rank}pid {answer['attached']} on {answer['node']}")
    if answer["ready"]:
        port = f"127.0.0.1:{answer['port']}"
        say(f"a program stands at its exception ({where}): press F5 (port {port})")
    else:
        logs = f"its log says why: tk logs {wanted_job}"
        note(f"  the program at its exception ({where}) does not answer; {logs}")
    return True


def _tell_editor(wanted: Settings, status: SessionStatus) -> None:
    """Let launch.json go to the session's port."""
    from tunnelkit.cli.commands.debug.vscode import follow_port
    from tunnelkit.errors import TunnelkitError

    try:
        for change in follow_port(wanted, int(status["debug_port"])):
            note(f"  {change.path}: F5 goes to port {status['debug_port']}")
    except (TunnelkitError, OSError) as error:
        # Somebody else's file: the session is up all the same.
        why = error.one_line() if isinstance(error, TunnelkitError) else str(error)
        note(f"  launch.json could not be changed: {why}")


def ready_line(status: SessionStatus) -> str:
    """Return one line that says what is up."""
    from tunnelkit.model import job_words

    job = status.get("job")
    where = status.get("node") or status.get("login")
    parts = [paint("ready", "green"), f"on {shown(where or '')}"]
    if job:
        adopted = ", adopted" if job.get("made_by") == "you" else ""
        parts.append(f"({job_words(job['id'])}{adopted})")
    return " ".join(parts) + f"; F5 goes to 127.0.0.1:{status['debug_port']}"


async def _up(launch: LaunchSpec) -> SessionStatus:
    from tunnelkit.cli.views.down import stop
    from tunnelkit.cli.views.startup import Follower, gone
    from tunnelkit.cli.views.status import other_version
    from tunnelkit.errors import TunnelkitError, UsageError
    from tunnelkit.session.runtime import control_client
    from tunnelkit.session.runtime.blocking_client import is_alive
    from tunnelkit.session.runtime.paths import session_paths

    paths = session_paths(launch.settings.project_dir)
    over = reconnects = False
    if is_alive(paths) and (status := await _current_unless_killed(paths)) is not None:
        reconnects = status["state"] == "reconnecting"
        if mismatch := other_version(status):
            note(f"  {mismatch}")
        if status["state"] == "closing":
            note("  this project's session is ending: waiting for its end")
            await gone(paths)
        elif status["state"] in ("ended", "failed"):
            over = True
            await stop(paths, keep=status["state"] == "ended")
        elif launch.node not in (None, status["node"], status["wanted_node"]):
            raise UsageError(
                f"this project's session is on {status['node'] or status['wanted_node']}",
                hint=f"tk down first, then tk up {launch.node}",
            )
        else:
            await _check_same_cluster(launch, status)
            _check_same_job(launch, status)
            if status["job"] is not None and launch.attach_job is None:
                _check_same_request(launch, paths)
    follower = Follower(paths)
    with follower.minding_interrupts():
        if not is_alive(paths):
            control_client.start_daemon(_with_last_job(launch, paths, with_job=not over), paths)
        try:
            return await follower.follow()
        except TunnelkitError as error:
            await _cleaned_up(paths)
            if not (reconnects and await _has_ended(paths)):
                raise
            # It was about to end when this command came: the user has asked for one that is up.
            error.hint = None
            note(f"  {error.one_line()}; getting a new one")
    return await _up(launch)


async def _current_unless_killed(paths: SessionPaths) -> SessionStatus | None:
    """Return the session's status; None if its process was ending already when it was asked."""
    from tunnelkit.errors import NoSessionError, TimeoutExpired
    from tunnelkit.session.runtime.paths import wait_unlocked

    try:
        return await _current(paths)
    except NoSessionError as error:
        try:
            await wait_unlocked(paths, timeout_s=_KILLED_S)
        except TimeoutExpired:
            raise error from None
        return None


async def _check_same_cluster(launch: LaunchSpec, status: SessionStatus) -> None:
    from tunnelkit.session.allocation.launch_record import check_same_cluster
    from tunnelkit.session.connection.same_host import is_same_host

    asked, has = launch.settings, status["login"]
    wanted = asked.require_cluster()
    if wanted == has:
        return
    if asked.cluster.is_kubernetes or not await is_same_host(asked, wanted, has):
        check_same_cluster(asked, printable(has), lambda text: note(f"  {text}"))


def _check_same_job(launch: LaunchSpec, status: SessionStatus) -> None:
    from tunnelkit.errors import UsageError
    from tunnelkit.model import job_words

    has = status["job"]["id"] if status["job"] is not None else None
    if launch.attach_job is not None and launch.attach_job != has:
        raise UsageError(
            f"this project's session has {job_words(has) if has else 'no job'}",
            hint=f"tk down first, then tk up --attach-job {launch.attach_job}",
        )


def _check_same_request(launch: LaunchSpec, paths: SessionPaths) -> None:
    """Check that the session has what is asked for now: a running one can't be changed."""
    from tunnelkit.errors import NoSessionError
    from tunnelkit.session.allocation.launch_record import check_same_request
    from tunnelkit.session.runtime.launch_spec import LaunchSpec

    try:
        has = LaunchSpec.load(paths.launch).settings
    except NoSessionError:
        return  # another version's: it goes on as it is
    check_same_request(launch.settings, has, lambda text: note(f"  {text}"))


async def _cleaned_up(paths: SessionPaths) -> None:
    """Wait for the end of a session that failed, so that nothing of it is left."""
    from tunnelkit.cli.views.startup import gone
    from tunnelkit.errors import NoSessionError, TimeoutExpired

    with contextlib.suppress(NoSessionError, TimeoutExpired):
        if (await _current(paths))["state"] in ("failed", "closing"):
            await gone(paths)


async def _has_ended(paths: SessionPaths) -> bool:
    """True if the session's allocation is over, and only its process is left."""
    from tunnelkit.errors import NoSessionError

    with contextlib.suppress(NoSessionError):
        return (await _current(paths))["state"] == "ended"
    return False


def _with_last_job(launch: LaunchSpec, paths: SessionPaths, *, with_job: bool) -> LaunchSpec:
    """Add the user's job of a killed session, with its node; a clean end removes its launch file.

    with_job: a job that the user submitted may still be of use.
    """
    from dataclasses import replace

    from tunnelkit.session.runtime.launch_spec import LeftSession
    from tunnelkit.session.runtime.paths import job_name

    left = LeftSession.load(paths.launch)
    if left is None:
        return launch
    login = launch.settings.require_cluster()
    if left.login not in (None, str(login)):
        # Node and job id of one cluster mean nothing on another.
        if with_job:
            what = job_name(launch.settings.project_dir, paths.id)
            if left.attach_job is not None:
                what = f"an agent of tk in job {left.attach_job}"
            note(
                f"  warning: this session goes to {login}; what the earlier one left on "
                f"{printable(left.login)} stays there: {printable(what)} — end it there"
            )
        return launch
    job = left.attach_job if with_job else None
    if job is None or launch.attach_job not in (None, job):
        return launch
    return replace(launch, node=launch.node or left.node, attach_job=job)


async def _current(paths: SessionPaths) -> SessionStatus:
    from tunnelkit.session.runtime import control_client
    from tunnelkit.session.runtime.control_calls import Status

    async with control_client.connect(paths) as session:
        return await session.call(Status())


def down(
    keep: Annotated[
        bool, typer.Option("--keep", help="End only this side; the job lives on.")
    ] = False,
) -> None:
    """End the session: loops, forwards, mirror, tunnels, and the job.

    tk down         everything
    tk down --keep  the laptop's side only; `tk up` takes the job over again
    """
    from tunnelkit.cli.views.down import end_session

    end_session(keep=keep)
