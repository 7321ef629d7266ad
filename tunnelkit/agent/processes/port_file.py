"""Port files: how a process on a node finds the port where a loop's debuggees dial in there.

`<directory>/<agent's name>.<loop>.<node>.port`, 0600 in the agent's own 0700 directory
(socket_dir.py): the number and a newline. The node's name is part of it, since some sites
share /tmp between nodes.
"""

import contextlib
import os
import re
import tempfile

from tunnelkit.agent.links import socket_dir
from tunnelkit.debuggee import ranks


def node_name() -> str:
    """This node's name, as the hook in each rank finds it."""
    return ranks.node_name(os.environ)


def path_of(directory: str, name: str, loop_id: int, node: str) -> str:
    """The path of the port file. Raises ValueError for names that can't be part of one."""
    name, node = socket_dir.check_name(name), socket_dir.check_name(node)
    return os.path.join(directory, f"{name}.{loop_id}.{node}.port")


def write(name: str, loop_id: int, port: int) -> str:
    """Write this node's port file in one step; its path. Raises OSError, NoSocketDirectory."""
    directory = socket_dir.make_directory()
    path = path_of(directory, name, loop_id, node_name())
    # mkstemp makes it 0600 and follows nothing that lies there.
    fd, temporary = tempfile.mkstemp(prefix="port-", dir=directory)
    try:
        with os.fdopen(fd, "w") as file:
            file.write(f"{port}\n")
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    return path


def remove(path: str, port: int) -> None:
    """Remove a port file, if it still tells this port: another relay may have come after us."""
    with contextlib.suppress(OSError, ValueError):
        with open(path) as file:
            written = int(file.read())
        if written == port:
            os.unlink(path)


def sweep(name: str) -> None:
    """Remove what a relay of this agent left here that was killed."""
    directory = socket_dir.make_directory()
    mark = re.compile(re.escape(name) + r"\.\d+\." + re.escape(node_name()) + r"\.port")
    for file in os.listdir(directory):
        if mark.fullmatch(file):
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(directory, file))
