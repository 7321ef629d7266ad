"""The node's directory for a command: the one that corresponds to its local one."""

from __future__ import annotations

from tunnelkit.session.files.mounted_paths import here_in
from tunnelkit.session.runtime.control_calls import ExecStream, LoopStream, PdbStream
from tunnelkit.session.session import Session


def working_directory(session: Session, stream: ExecStream | LoopStream | PdbStream) -> str:
    """Return the directory on the node in which a stream's program runs."""
    if stream.cwd:
        return stream.cwd
    mounted = here_in(session.files.mounts, stream.here)
    if mounted is not None:
        return mounted
    mirrors = session.files.mirrors
    if mirrors is None or not mirrors.project.remote_root:
        return "~"
    there = mirrors.remote_path(stream.here) if stream.here else None
    return there or mirrors.project.remote_root
