"""The launch record of a session on its way up, and the one that an earlier session left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tunnelkit.config.schema import Settings
from tunnelkit.errors import AllocationError, UsageError
from tunnelkit.model import JobStatus, job_words
from tunnelkit.session.runtime.launch_spec import LaunchSpec, LeftSession
from tunnelkit.session.runtime.paths import SessionPaths


def check_same_request(asked: Settings, has: Settings, tell: Callable[[str], None]) -> None:
    """Check that an allocation has what is asked for now: a job can't be changed.

    Raises UsageError for a flag's value that it has not. tell: called with a message for one of a
    file, which may have been changed meanwhile.
    """
    for name, origin in asked.origins.items():
        if not name.startswith("allocation.") or origin.kind == "default":
            continue
        wanted, there = asked.written(name), has.written(name)
        if wanted == there:
            continue
        key = name.partition(".")[2]
        current = "none asked for" if there is None else there
        if origin.kind == "flag":
            raise UsageError(
                f"this project's session has another allocation: {key} is {current}, not {wanted}",
                hint="tk down first, then tk up again as you wrote it",
            )
        tell(f"{origin} says {key} = {wanted}; this session has {current}, until tk down")


def check_same_cluster(asked: Settings, has: str, tell: Callable[[str], None]) -> None:
    """Check what asks for another cluster than `has`, the one of the session that is up.

    Raises UsageError for a flag, a variable, or the profile that one of these names. tell: called
    with a message for a file, which may have been changed meanwhile.
    """
    keys = ("context", "namespace") if asked.cluster.is_kubernetes else ("login",)
    origins = [asked.origins[f"cluster.{key}"] for key in keys]
    origins = [asked.origins["profile"] if one.kind == "profile" else one for one in origins]
    wanted = asked.require_cluster()
    typed = next((one for one in origins if one.kind in ("flag", "environment")), None)
    if typed is not None:
        raise UsageError(
            f"this project's session goes to {has}, not to {wanted} ({typed})",
            hint="tk down first, then tk up again as you wrote it",
        )
    tell(f"{origins[0]} says {wanted}; this session goes to {has}, until tk down")


class LaunchRecord:
    """Makes the session's launch record the one that the next session reads.

    Not before the session has a job: a start that is refused must not make the next `tk up` or
    `tk down` forget where an earlier session's job is.
    say: called with a message for the user.
    """

    def __init__(self, launch: LaunchSpec, paths: SessionPaths, say: Callable[[str], None]) -> None:
        self._launch = launch
        self._paths = paths
        self._say = say
        left = LeftSession.load(paths.launch)
        #: The earlier session on this cluster; None if there was none, or after `settle`.
        self.left = left if left and left.login in (None, launch.cluster_name) else None
        #: The node that was asked for; of a job that was taken over, when it was made.
        self.node = launch.node

    def check(self, found: JobStatus, node: str | None) -> None:
        """Check that an earlier session's job was asked for as it is now.

        Raises AllocationError if it waits for another node, UsageError if it has other resources.
        """
        left = self.left
        if left is None:
            return
        is_known = left.node is not None or left.settings is not None
        if node is not None and not found.nodes and is_known and node != left.node:
            raise AllocationError(
                f"this project already has {job_words(found.job_id)}, which waits for "
                f"{left.node or 'any node'}",
                hint=f"tk down first, then tk up {node}",
            )
        if left.settings is not None:
            check_same_request(self._launch.settings, left.settings, self._say)

    def settle(self, node: str | None, *, taken_over: bool = False) -> None:
        """Replace the earlier session's record. Call it before a job is submitted: it must be
        found even if the submission's answer never comes.

        A job that is taken over stays recorded with the request that it was made by.
        """
        left, settings = self.left, self._launch.settings
        if taken_over and left is not None:
            node = left.node or node
            if left.settings is not None:
                settings = replace(settings, allocation=left.settings.allocation)
        self.node = node
        launch = replace(self._launch, settings=settings, node=node)
        launch.save(self._paths.launch)
        self._paths.launch_wanted.unlink(missing_ok=True)
        self.left = None

    def forget_attached(self) -> None:
        """Remove the record of the user's job, which is over; one of another job stays."""
        if self.left is not None and self.left.attach_job == self._launch.attach_job:
            self._paths.launch.unlink(missing_ok=True)
