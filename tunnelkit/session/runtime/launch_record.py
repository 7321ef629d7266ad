"""The launch record of a session on its way up, and the one that an earlier session left."""

from __future__ import annotations

from tunnelkit.session.runtime.launch_spec import LaunchSpec, LeftSession
from tunnelkit.session.runtime.paths import SessionPaths


class LaunchRecord:
    """Makes the session's launch record the one that the next session reads.

    Not before the session has a job: a start that is refused must not make the next `tk up` or
    `tk down` forget where an earlier session's job is.
    """

    def __init__(self, launch: LaunchSpec, paths: SessionPaths) -> None:
        self._launch = launch
        self._paths = paths
        left = LeftSession.load(paths.launch)
        #: The earlier session on this cluster; None if there was none, or after `settle`.
        self.left = left if left and left.login in (None, launch.cluster_name) else None

    def settle(self) -> None:
        """Replace the earlier session's record. Call it before a job is submitted: it must be
        found even if the submission's answer never comes.
        """
        self._launch.save(self._paths.launch)
        self._paths.launch_wanted.unlink(missing_ok=True)
        self.left = None

    def forget_attached(self) -> None:
        """Remove the record of the user's job, which is over; one of another job stays."""
        if self.left is not None and self.left.attach_job == self._launch.attach_job:
            self._paths.launch.unlink(missing_ok=True)
