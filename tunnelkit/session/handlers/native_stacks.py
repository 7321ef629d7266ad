"""`tk ranks --native`: the stacks of ranks that do not answer, by py-spy on their nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from tunnelkit.debug.ranks.fold import fold_ranks
from tunnelkit.debug.ranks.py_spy_dump import NativeStack, NoStack, Refusal, read_dump
from tunnelkit.debug.ranks.sample import RankSample, RankState
from tunnelkit.errors import TunnelkitError
from tunnelkit.session.agent.command_output import output_of
from tunnelkit.session.debugging.py_spy import (
    NATIVE,
    STANDS,
    VARIABLE,
    NodeFacts,
    PySpyBinary,
    read_facts,
)
from tunnelkit.session.session import Session

_PROBE_S = 15.0
#: To send it: 3 MB.
_STORE_S = 180.0
#: One process, its symbols included; under torch there are hundreds of libraries.
_DUMP_S = 30.0
_LONGEST_DUMP_BYTES = 8 * 1024 * 1024
#: Of one node.
_AT_ONCE = 8
#: In the kernel it can't be traced, and py-spy would wait with it.
_UNTRACEABLE = frozenset("DZX")


class NativeStacks:
    """The stacks of one `tk ranks --native`; its nodes are prepared once.

    notes: a line for each reason why stacks are missing, after `add`.
    """

    def __init__(self, session: Session, binary: PySpyBinary) -> None:
        self._session = session
        self._binary = binary
        self._facts: dict[str, NodeFacts | TunnelkitError] = {}
        self.notes: list[str] = []

    async def add(self, samples: Sequence[RankSample]) -> list[RankSample]:
        """Return the samples, with stacks for ranks that have none and may be traced."""
        wanted = [one for one in samples if _wants(one)]
        await self._prepare(list(dict.fromkeys(one.node for one in wanted)))
        slots = {one.node: asyncio.Semaphore(_AT_ONCE) for one in wanted}

        async def ask(sample: RankSample) -> NativeStack | NoStack | None:
            if self._why_not(sample.node):
                return None
            async with slots[sample.node]:
                return await self._stack(sample)

        found = dict(
            zip(
                [one.rank for one in wanted],
                await asyncio.gather(*map(ask, wanted)),
                strict=True,
            )
        )
        self.notes = self._notes(wanted, found)
        return [_with_stack(one, found.get(one.rank)) for one in samples]

    # -- nodes ----------------------------------------------------------------

    async def _prepare(self, nodes: Sequence[str]) -> None:
        """See that these nodes have the binary. Most share a directory: the first one is first."""
        fresh = [node for node in nodes if node not in self._facts]
        for part in (fresh[:1], fresh[1:]):
            facts = await asyncio.gather(*(self._node(node) for node in part))
            self._facts.update(zip(part, facts, strict=True))

    async def _node(self, node: str) -> NodeFacts | TunnelkitError:
        try:
            agent = await self._session.agents.on(node)
            probe = self._binary.probe(self._base(node))
            facts = read_facts(await output_of(agent, probe, timeout_s=_PROBE_S))
            if facts.file == "need" and facts.machine == self._binary.machine:
                data = await asyncio.to_thread(self._binary.packed)
                store = self._binary.store(self._base(node))
                stored = await output_of(agent, store, timeout_s=_STORE_S, stdin=data)
                facts = replace(facts, file=read_facts(stored).file)
            return facts
        except TimeoutError:
            return TunnelkitError("py-spy could not be sent there in time", hint="try once more")
        except TunnelkitError as error:
            return error

    def _base(self, node: str) -> str:
        return self._session.cluster.base_on(node)

    def _why_not(self, node: str) -> str:
        """The reason why nothing can be asked there; "" if it can."""
        facts, mine = self._facts[node], self._binary.machine
        if isinstance(facts, TunnelkitError):
            return facts.one_line()
        if facts.machine != mine:
            return (
                f"py-spy here is for {mine}, and the node is {facts.machine or 'unknown'}: set "
                f"{VARIABLE} to one for it"
            )
        if facts.file == "foreign":
            return f"another user owns {self._base(node)}/native"
        return "" if facts.file == "have" else f"py-spy can't be kept in {self._base(node)}/native"

    # -- ranks ----------------------------------------------------------------

    async def _stack(self, sample: RankSample) -> NativeStack | NoStack:
        letter = sample.process.letter if sample.process is not None else ""
        found = await self._dump(sample, STANDS if letter in ("T", "t") else NATIVE)
        if isinstance(found, NoStack) and found.kind is Refusal.OTHER:
            # Not every architecture and library lets native frames be read.
            return await self._dump(sample)
        return found

    async def _dump(self, sample: RankSample, switch: str = "") -> NativeStack | NoStack:
        try:
            agent = await self._session.agents.on(sample.node)
            output = await output_of(
                agent,
                self._binary.dump(self._base(sample.node), sample.pid, switch),
                timeout_s=_DUMP_S,
                limit_bytes=_LONGEST_DUMP_BYTES,
            )
        except TimeoutError:
            return NoStack(Refusal.OTHER, f"py-spy did not end within {_DUMP_S:.0f} s")
        except TunnelkitError as error:
            return NoStack(Refusal.OTHER, error.one_line())
        cwd, _, dump = output.partition(b"\n")
        directory = cwd.decode("utf-8", "replace")
        return read_dump(dump, sample.pid, directory if directory.startswith("/") else "")

    # -- missing stacks ---------------------------------------------------------

    def _notes(
        self, wanted: Sequence[RankSample], found: dict[int, NativeStack | NoStack | None]
    ) -> list[str]:
        """A line for each reason, with the ranks."""
        reasons: dict[str, list[int]] = {}
        for one in wanted:
            why = self._reason(one, found[one.rank])
            if why:
                reasons.setdefault(why, []).append(one.rank)
        return [f"no stack of {_ranks(ranks)}: {why}" for why, ranks in reasons.items()]

    def _reason(self, sample: RankSample, found: NativeStack | NoStack | None) -> str:
        if found is None:
            return f"{sample.node}: {self._why_not(sample.node)}"
        if isinstance(found, NativeStack):
            return ""
        if found.kind is Refusal.PTRACE:
            return _ptrace(self._facts[sample.node])
        return "the process has ended" if found.kind is Refusal.GONE else found.why


def _wants(sample: RankSample) -> bool:
    if sample.state not in (RankState.SILENT, RankState.UNDEBUGGED) or sample.frames:
        return False
    return sample.process is None or sample.process.letter not in _UNTRACEABLE


def _with_stack(sample: RankSample, found: NativeStack | NoStack | None) -> RankSample:
    if not isinstance(found, NativeStack):
        return sample
    process = sample.process
    if process is not None:
        process = replace(process, holds_gil=found.holds_gil)
    return replace(sample, frames=found.frames, process=process)


def _ptrace(facts: NodeFacts | TunnelkitError) -> str:
    """The reason of the system that forbids to trace, and what to do."""
    yama = facts.yama if isinstance(facts, NodeFacts) and not facts.may_trace else 0
    if yama:
        return (
            f"the node lets no process look into another (kernel.yama.ptrace_scope = {yama}); an "
            "administrator can set it to 0; ranks of `tk loop` answer without it"
        )
    return (
        "the system forbids to look into it (ptrace); a container needs --cap-add=SYS_PTRACE; "
        "ranks of `tk loop` answer without it"
    )


def _ranks(ranks: Sequence[int]) -> str:
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {fold_ranks(ranks)}"
