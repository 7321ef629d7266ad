"""A program under pdb whose prompt is on the stream of `tk pdb --port`."""

from __future__ import annotations

from importlib.resources import files

from tunnelkit.debug.loop_command import LoopCommand
from tunnelkit.debug.pdb.pdb_command import text_program
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.mux import Mux
from tunnelkit.session.handlers.loop_start import check_there
from tunnelkit.session.handlers.working_directory import working_directory
from tunnelkit.session.runtime.control_calls import SYNC_TIMEOUT_S, PdbStream
from tunnelkit.session.session import Session

VARIABLE = "TK_PDB_RUNNER"
#: Runs the text of the variable in a namespace of its own, as the program has `__main__`.
START = f"""\
import os
names = {{"__name__": "tk_pdb"}}
exec(compile(os.environ.pop({VARIABLE!r}), "<tk pdb>", "exec"), names)
names["main"]()
"""


async def run_pdb(session: Session, mux: Mux, channel: Channel, stream: PdbStream) -> None:
    """Run the program on the first node until it or the stream ends. Raises TunnelkitError."""
    program = text_program(stream.words)
    if session.files.mirrors is not None:
        await session.files.mirrors.barrier(SYNC_TIMEOUT_S)
    cwd = working_directory(session, stream)
    argv = [*program.python, "-c", START, *program.words]
    command = LoopCommand(tuple(argv), file=program.file)
    agent, node = session.agent(), session.agents.node
    await check_there(agent, node, command, cwd=cwd, here=stream.here or "")
    runner = files("tunnelkit.debuggee.evaluated").joinpath("pdb_runner.py").read_text("utf-8")
    header: dict[str, object] = {
        "type": "exec",
        "argv": argv,
        "cwd": cwd,
        "env": {**program.env, VARIABLE: runner},
    }
    await session.agents.execs.run(mux, channel, header)
