"""Processes of `tk run` and `tk shell`, on the first node or another one."""

from __future__ import annotations

from tunnelkit.errors import TunnelkitError
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.mux import Mux
from tunnelkit.mux.rpc import Handler
from tunnelkit.session.agent.exec_streams import ExecStreams
from tunnelkit.session.handlers.barrier import check_alive
from tunnelkit.session.handlers.working_directory import working_directory
from tunnelkit.session.runtime.control_calls import ExecResize, ExecSignal, ExecStream
from tunnelkit.session.session import Session


class Processes:
    """Runs processes and passes their signals and terminal sizes on."""

    def __init__(self, session: Session) -> None:
        self._session = session
        #: The ExecStreams of processes on other nodes, by connection and channel.
        self._elsewhere: dict[tuple[Mux, int], ExecStreams] = {}

    def handlers(self, mux: Mux) -> dict[str, Handler]:
        """Return the handlers for the command at the other end of `mux`."""

        def execs(channel: int) -> ExecStreams:
            return self._elsewhere.get((mux, channel), self._session.agents.execs)

        async def signal(request: ExecSignal) -> None:
            await execs(request.channel).signal(mux, request.channel, request.signal)

        async def resize(request: ExecResize) -> None:
            channel = request.channel
            await execs(channel).resize(mux, channel, request.rows, request.cols)

        return dict([ExecSignal.served_by(signal), ExecResize.served_by(resize)])

    async def run(self, mux: Mux, channel: Channel, stream: ExecStream) -> None:
        """Run a process on the node that `stream` names."""
        header = {
            "type": stream.NAME,
            **stream.to_json(),
            "cwd": working_directory(self._session, stream),
        }
        execs: ExecStreams | None = None
        try:
            self._session.agents.first()
            check_alive(self._session)
            if stream.node is not None:
                execs = await self._session.agents.peers.execs(stream.node)
        except TunnelkitError as error:
            channel.close({"failure": error.to_json()})
            return
        if execs is None:
            await self._session.agents.execs.run(mux, channel, header)
            return
        self._elsewhere[mux, channel.id] = execs
        try:
            await execs.run(mux, channel, header)
        finally:
            del self._elsewhere[mux, channel.id]
