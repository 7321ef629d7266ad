"""The ranks of a program that was started without a debugger, as they are seen from outside."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tunnelkit.debug.debug_target import DebugTarget
from tunnelkit.debug.rank_looks import look
from tunnelkit.debug.ranks.sample import RankSample, RankState
from tunnelkit.errors import TunnelkitError
from tunnelkit.messages.agent_calls import PythonInfo
from tunnelkit.session.debugging.rank_processes import newest_run, rank_processes
from tunnelkit.session.handlers.job_processes import find_pythons
from tunnelkit.session.handlers.rank_states import ProcessStates, states_of
from tunnelkit.session.session import Session

#: Of a command line.
_LONGEST_COMMAND = 500


@dataclass(frozen=True)
class OutsideRanks:
    """The ranks of one run. ranks: one process for each. unreached: nodes that did not answer."""

    session: Session
    run: str
    ranks: Sequence[PythonInfo]
    unreached: Mapping[str, TunnelkitError]

    @property
    def command(self) -> str:
        """The command line of the lowest rank, its interpreter by name."""
        python, *words = self.ranks[0]["command"] or ["-"]
        return shlex.join([python.rpartition("/")[2], *words[:50]])[:_LONGEST_COMMAND]

    async def look(self) -> list[RankSample]:
        """Ask those that a debugger was attached to; describe the others by /proc."""
        attached = {number: self._target(one) for number, one in self._numbered.items()}
        asked = {number: target for number, target in attached.items() if target is not None}
        others = {number: one for number, one in self._numbered.items() if number not in asked}
        answers, states = await asyncio.gather(
            asyncio.gather(*(look([target]) for target in asked.values())),
            states_of(self.session, [(one["node"], one["pid"]) for one in others.values()]),
        )
        samples = [
            replace(sample, rank=number, local_rank=self._numbered[number]["local"])
            for number, answer in zip(asked, answers, strict=True)
            for sample in answer
        ]
        samples += [_sample(number, one, states) for number, one in others.items()]
        return sorted(samples, key=lambda one: one.rank)

    @property
    def _numbered(self) -> dict[int, PythonInfo]:
        """The processes by rank; of two with the same rank the newer one."""
        return {one["rank"] or 0: one for one in self.ranks}

    def _target(self, process: PythonInfo) -> DebugTarget | None:
        """The debugger's end of a process that was attached to; None if it has none."""
        for one in self.session.loops.attachments():
            run = one.first()
            if (one.node, one.pid) == (process["node"], process["pid"]) and run is not None:
                return next((target for target in run.targets if target.armed), None)
        return None


async def find_outside(session: Session) -> OutsideRanks | None:
    """Find the ranks of the newest run, or the only program; None if there is none.

    Raises TunnelkitError if the first node can't be asked.
    """
    found = await find_pythons(session)
    ranks = newest_run(rank_processes(found.processes))
    if not ranks:
        programs = [one for one in found.processes if not one["launcher"] and one["python"]]
        ranks = programs if len(programs) == 1 else []
    return OutsideRanks(session, ranks[0]["run"], ranks, found.unreached) if ranks else None


def _sample(rank: int, process: PythonInfo, states: ProcessStates) -> RankSample:
    state = states.found.get((process["node"], process["pid"]))
    gone = state is None and process["node"] in states.answered
    return RankSample(
        rank=rank,
        node=process["node"],
        pid=process["pid"],
        state=RankState.ENDED if gone else RankState.UNDEBUGGED,
        cpu_s=state.cpu_s if state is not None else None,
        process=state,
        local_rank=process["local"],
        command=_command(process),
    )


def _command(process: PythonInfo) -> str:
    return shlex.join(word[:_LONGEST_COMMAND] for word in process["command"][:50])[
        :_LONGEST_COMMAND
    ]
