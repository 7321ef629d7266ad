"""The ports of one loop, on all its nodes. Each process that dials in is matched with its run."""

import socket
import sys
from typing import Callable, List, Optional, Tuple

from tunnelkit.agent.debug.rank_support import DialedProcess, RankDialIns, RankProcesses, visitor
from tunnelkit.agent.debug.unidentified_peers import UnidentifiedPeers
from tunnelkit.agent.processes.dial_in import DialIn, HeldPorts
from tunnelkit.agent.processes.loop_run import LoopRun
from tunnelkit.agent.processes.peer_process import identify

Arrived = Callable[[LoopRun, socket.socket, DialedProcess], None]


class LoopDialIns:
    """The ports of a loop. `open`, then `close`.

    runs: returns those that live, in their order. arrived: takes each process, with its run.
    doors: of a loop of ranks. held: keeps the port afterwards.
    """

    def __init__(
        self,
        runs: Callable[[], List[LoopRun]],
        arrived: Arrived,
        doors: Optional[RankDialIns],
        held: Optional[HeldPorts],
    ) -> None:
        self._runs = runs
        self._arrived = arrived
        self._doors = doors
        self._held = held
        self.here = DialIn(self._dialled)
        self._strangers = UnidentifiedPeers(self._admit)
        #: Dialled in while the run that they belong to is being made.
        self._early: Optional[List[Tuple[socket.socket, DialedProcess]]] = None
        self._refuses = False
        #: Of the run of that number.
        self._ranks, self._ranks_of = RankProcesses(), 0

    def open(self, loop_id: int) -> None:
        """Listen on this node. Raises OSError, NoSocketDirectory."""
        self.here.open()
        if self._doors is not None:
            self._doors.open(loop_id, self.here.port)

    async def reach_nodes(self, on_lost: Callable[[str, str], None]) -> None:
        """Listen on the other nodes, where there are ranks. Raises RpcError."""
        if self._doors is not None:
            await self._doors.reach(self.visit, on_lost)

    def wanted(self, run: LoopRun, who: DialedProcess) -> Optional[int]:
        """The number of ranks that will dial in; 0: unknown; None: this one is no rank of a loop,
        or a process that a rank has started."""
        if self._doors is None or who.rank is None:
            return None
        if run.number != self._ranks_of:
            self._ranks_of, self._ranks = run.number, RankProcesses()
        is_rank = self._ranks.take(who.rank.global_rank, who)
        return self._doors.wanted(who.rank) if is_rank else None

    def refuse(self) -> None:
        """Hang up on all that dial in from now on."""
        self._refuses = True

    def expect(self) -> None:
        """A run is being made: its process may dial in before it is known."""
        self._early = []

    def made(self) -> None:
        """The run is made, or is not: match those that came early."""
        early, self._early = self._early, None
        for sock, who in early or ():
            self.visit(sock, who)

    def close(self) -> None:
        """Give up the port of this node, unless something that outlives this may dial it."""
        if self._held is None or not self.here.port:
            self.here.close()
        else:
            self._held.add(self.here)
        self._strangers.close()

    async def close_far(self) -> None:
        """Give up the other nodes' ports."""
        if self._doors is not None:
            await self._doors.close()

    def visit(self, sock: socket.socket, who: DialedProcess, *, stayed: bool = False) -> None:
        """A process has dialled in. stayed: nobody knows it, but it has not hung up."""
        runs = self._runs()
        run = next((one for one in runs if one.process.tag == who.identity.tag), None)
        if run is None and self._early is not None and not self._refuses:
            # A forked debuggee can dial in before the fork server has reported it.
            self._early.append((sock, who))
            return
        if run is None and runs:
            # Elsewhere nobody can tell which process it is.
            if sys.platform == "linux" and not (runs[0].dialled or stayed or self._refuses):
                self._strangers.hold(sock, who)
                return
            run = runs[0]
        if run is None or self._refuses:
            sock.close()
        else:
            self._arrived(run, sock, who)

    def _dialled(self, sock: socket.socket) -> None:
        likely = [run.process.pid for run in self._runs()]
        self.visit(sock, visitor(identify(sock, likely)))

    def _admit(self, sock: socket.socket, who: DialedProcess) -> None:
        self.visit(sock, who, stayed=True)
