"""Preparation of a session's loop: its program is on the node, and has a debugpy."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from typing import TYPE_CHECKING

from tunnelkit.debug.loop_command import LoopCommand
from tunnelkit.debug.pdb.pdb_command import PYTHON_THERE
from tunnelkit.messages.agent_calls import EXEC_PROBE, Caller
from tunnelkit.session.debugging.debugpy_upload import upload_debugpy
from tunnelkit.session.debugging.loop_checks import no_command, no_file

if TYPE_CHECKING:
    from tunnelkit.session.session import Session

#: Checks for a command $1 and a file $2, in the directory where the loop would run.
_LOOK = 'command -v "$1" >/dev/null 2>&1 || exit 3; [ -z "$2" ] || [ -e "$2" ] || exit 4'
_NO_COMMAND, _NO_FILE = 3, 4


async def prepared(
    session: Session, command: LoopCommand, *, cwd: str, here: str
) -> tuple[LoopCommand, tuple[str, ...]]:
    """Return the command, with debugpy for an interpreter without one, and notes for the user.

    Call it after a barrier, when mirrored files are on the node.
    cwd: the working directory on the node. here: the local directory of `tk loop`.
    Raises DebugError if its program or its file is not on the node.
    """
    agent, node = session.agent(), session.agents.node
    lending = lend_debugpy(
        session,
        command,
        cwd=cwd,
        agent=agent,
        base=session.cluster.setup.installed.base,
        node=session.cluster.files_node,
        pythonpath=session.agents.info.get("pythonpath"),
    )
    _, lent = await asyncio.gather(check_there(agent, node, command, cwd=cwd, here=here), lending)
    return lent


async def check_there(
    agent: Caller, node: str, command: LoopCommand, *, cwd: str, here: str
) -> None:
    """Check that the node has the command's program and file. As `prepared`."""
    if command.expands and "$" in f"{command.program}{command.file or ''}":
        return  # the pod alone knows what they are
    look = ["sh", "-c", _LOOK, "sh", command.program, command.file or ""]
    looked = await EXEC_PROBE.ask(agent, {"argv": look, "cwd": cwd})
    if looked == _NO_COMMAND:
        raise no_command(command, node)
    if looked == _NO_FILE and command.file is not None:
        raise no_file(command, node, left_out=os.path.exists(os.path.join(here, command.file)))


async def lend_debugpy(
    session: Session,
    command: LoopCommand,
    *,
    cwd: str,
    agent: Caller,
    base: str,
    node: str | None,
    pythonpath: object,
) -> tuple[LoopCommand, tuple[str, ...]]:
    """Return the command as `prepared` does, for a node whose agent is `agent`.

    base: tk's directory on `node`, or None for the login host. pythonpath: the agent's."""
    if not command.interpreter and not command.ranks:
        return command, ()
    # The Python of a launcher's ranks is not known before; mostly it is the first one.
    interpreter = command.interpreter or PYTHON_THERE
    probe = [*interpreter, "-c", "import debugpy"]
    code = await EXEC_PROBE.ask(agent, {"argv": probe, "cwd": cwd})
    if code in (0, None):
        return command, ()
    place = await upload_debugpy(session.link, base, node)
    name = command.interpreter[0] if command.interpreter else "Python"
    note = f"{name} on the node has no debugpy: ours is lent to it"
    before = command.env.get("PYTHONPATH") or pythonpath
    path = f"{before}:{place}" if before else place
    return replace(command, env={**command.env, "PYTHONPATH": path}), (note,)
