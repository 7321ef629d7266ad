"""The live channel: sends batches of files over the wire to the agent.

The agent compares the remote files itself, and publishes each batch as one generation. The messages
are in PROTOCOL.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from tunnelkit.errors import ConnectionFailed, MirrorError, TunnelkitError
from tunnelkit.mirror.api import FileAgent, MirrorHalted
from tunnelkit.mirror.remote.owner import OwnerRecord, displaced
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.parcels import Parcel, ParcelCutter, ParcelError, checked, encode
from tunnelkit.mux.tasks import cancel_all

#: How often the link is checked while an answer is awaited.
_LINK_CHECK_S = 0.5
#: A remote file system that takes longer over a batch is hung.
_ANSWER_S = 60.0
_BYTES_PER_S = 256 << 10
_HELLO_S = 20.0
#: A part of an answer has as many paths, and twice that, but for the last one.
_PART_PATHS = 5_000
#: Errors of the agent that concern the remote root, not the channel.
_REFUSALS = ("displaced", "no-root")

_T = TypeVar("_T")


class Fenced(ConnectionFailed):
    """Refusal because the owner file names another turn of this same mirror (fence.py)."""


class NotThere(MirrorError):
    """Refusal because the agent does not see the remote root: it can't serve this mirror."""


@dataclass(slots=True)
class BatchAnswer:
    """Result of a batch.

    results: (state, reason) of each path that was no plain success.
    replaced_dir: directory that keeps the replaced files.
    """

    results: dict[str, tuple[str, str]] = field(default_factory=dict)
    replaced_dir: str | None = None


#: Called with three mappings by path: the digests of a batch, the stamps of its paths that the
#: agent has read back with these digests, and why the others differ.
OnProof = Callable[[Mapping[str, str], Mapping[str, str], Mapping[str, str]], Awaitable[None]]


class ParcelReader:
    """Reads the parcels of one channel."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._cutter = ParcelCutter()
        self._ready: list[Parcel] = []

    async def read(self) -> Parcel | None:
        """Return the next one; None at the end, whatever was begun last. Raises ParcelError."""
        while not self._ready:
            data = await self._channel.read()
            if not data:
                return None
            self._ready = self._cutter.feed(data)
            self._ready.reverse()
        return self._ready.pop()


class MirrorChannel:
    """One channel to one agent for one root. Made by `open`; `close` at the end.

    place: host and root, for messages.
    on_proof: called in the reader's task with what the agent has read back of a batch.
    """

    def __init__(
        self, agent: FileAgent, channel: Channel, place: tuple[str, str], claim: OwnerRecord | None
    ) -> None:
        self.agent = agent
        self.instance = ""
        #: True if a batch may begin within another
        self.nests = False
        #: True if something was sent that has no answer yet
        self.is_owed = False
        self._claim = claim
        self._place = place
        self._channel = channel
        self._reader = ParcelReader(channel)
        self._answers: dict[int, asyncio.Future[BatchAnswer]] = {}
        #: results that came so far of answers in several parts
        self._parts: dict[int, dict[str, tuple[str, str]]] = {}
        #: parts that the answer to a batch may still have: a node could send them without end
        self._parts_left: dict[int, int] = {}
        #: batches committed and not yet read back; each future gets the recorded digests
        self._proofs: dict[int, asyncio.Future[Mapping[str, str]]] = {}
        self._proved = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._number = 0
        self._failure: TunnelkitError | None = None

    @classmethod
    async def open(
        cls, agent: FileAgent, root: str, claim: OwnerRecord | None, *, host: str, on_proof: OnProof
    ) -> MirrorChannel:
        """Open a channel.

        Raises NotThere, Fenced or ConnectionFailed; MirrorHalted if the root belongs to another
        mirror.
        """
        channel = agent.open({"type": "mirror", "root": root, "owner": owner_json(claim)})
        live = cls(agent, channel, (host, root), claim)
        try:
            parcel = await while_up(agent, live._reader.read(), _HELLO_S)
            if parcel is None:
                raise _link_lost()
        except BaseException:
            channel.abort()
            raise
        header, _ = parcel
        if not header.get("ok"):
            channel.close()
            raise refusal(header, host, root, claim)
        live.instance = str(header["instance"])
        live.nests = header.get("nests") is True
        live._task = asyncio.create_task(live._read(on_proof), name="tk-mirror-live")
        return live

    @property
    def is_usable(self) -> bool:
        """True if a batch may be begun."""
        return self._failure is None and self.agent.is_up and not self._channel.is_over

    def begin(self, replaced_stamp: str) -> tuple[int, bytes]:
        """Begin a batch. Return its number, and the bytes that must be sent first.

        If `nests`, another batch may be open: it goes on after this one is committed or aborted.
        replaced_stamp: names the directory for replaced files.
        """
        self._number += 1
        parcel = {"op": "begin", "batch": self._number, "replaced": replaced_stamp}
        return self._number, encode(parcel)

    async def write(self, data: bytes, *, outage_s: float = 0.0) -> None:
        """Send parcels of the batch.

        Raises ConnectionFailed if the link is lost for longer than `outage_s`. When it is back, the
        channel goes on where it was.
        """
        if not data:
            return
        self._check(may_be_lost=outage_s > 0)
        self.is_owed = True
        if self._channel.is_full():
            budget_s = _ANSWER_S + len(data) / _BYTES_PER_S + outage_s
            await while_up(self.agent, self._channel.write(data), budget_s, outage_s=outage_s)
        else:
            self._channel.write_nowait(data)

    def abort(self, batch: int) -> None:
        """Make the agent discard the whole batch."""
        if not self._channel.is_over:
            self._channel.write_nowait(encode({"op": "abort", "batch": batch}))

    async def commit(self, batch: int, rest: bytes, *, paths: int, outage_s: float = 0.0) -> None:
        """Make the agent publish the batch of so many paths, after the `rest` of its parcels.

        `answer` waits for the result. Raises as `write`; after `close` too.
        """
        loop = asyncio.get_running_loop()
        self._answers[batch] = loop.create_future()
        self._proofs[batch] = loop.create_future()
        self._parts_left[batch] = paths // _PART_PATHS + 1
        data = rest + encode({"op": "commit", "batch": batch})
        await self.write(data, outage_s=outage_s)

    async def answer(
        self, batch: int, *, files: int, size_bytes: int, outage_s: float = 0.0
    ) -> BatchAnswer:
        """Return the result of the batch.

        Raises as `write`. Then the batch may be published or not.
        """
        answer = self._answers[batch]
        try:
            budget_s = _ANSWER_S + size_bytes / _BYTES_PER_S + files / 50 + outage_s
            waiting = asyncio.shield(answer)
            found = await while_up(self.agent, waiting, budget_s, outage_s=outage_s)
            self.is_owed = False
            return found
        except BaseException:
            self._proofs.pop(batch, None)
            raise
        finally:
            self._answers.pop(batch, None)
            self._parts.pop(batch, None)
            self._parts_left.pop(batch, None)
            answer.cancel()

    def recorded(self, batch: int, digests: Mapping[str, str]) -> None:
        """Note that the batch's answer was recorded; its proof may be recorded, too."""
        proof = self._proofs.get(batch)
        if proof is not None and not proof.done():
            proof.set_result(digests)

    async def proofs_in(self) -> None:
        """Return once all committed batches were read back, or won't be."""
        while self._proofs and self._failure is None:
            self._proved.clear()
            await self._proved.wait()

    async def close(self) -> None:
        """Close the channel; the agent discards what is staged."""
        self._fail(
            ConnectionFailed(
                "the mirror's channel was closed",
                transient=True,
                hint="it is opened again by itself; try again",
            )
        )
        self._channel.abort()
        task, self._task = self._task, None
        if task is not None:
            await cancel_all(task)

    def _check(self, *, may_be_lost: bool) -> None:
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        if self._channel.is_over or not (self.agent.is_up or may_be_lost):
            raise _link_lost()

    async def _read(self, on_proof: OnProof) -> None:
        try:
            while True:
                parcel = await self._reader.read()
                if parcel is None:
                    self._fail(_link_lost())
                    return
                await self._take(parcel[0], on_proof)
        except ParcelError as error:
            self._fail(_nonsense(str(error)))
        except TunnelkitError as error:
            self._fail(error)
        except Exception as error:
            # A malformed answer, or a record that can't be written: no caller may wait for a
            # reader that has ended.
            self._fail(_nonsense(f"{type(error).__name__}: {error}"))

    async def _take(self, header: Mapping[str, object], on_proof: OnProof) -> None:
        if "error" in header:
            text = str(header.get("message", header["error"]))
            known = header["error"] in _REFUSALS
            error = refusal(header, *self._place, self._claim) if known else _nonsense(text)
            self._fail(error)
            return
        batch = checked(header["batch"], int)
        answer = self._answers.get(batch)
        if answer is not None and not answer.done() and "part" in header:
            self._parts_left[batch] -= 1
            if self._parts_left[batch] < 0:
                raise ParcelError(
                    f"the answer to batch {batch} has more parts than it has paths for"
                )
            self._parts.setdefault(batch, {}).update(_results(header["part"]))
        elif header.get("committed"):
            if answer is not None and not answer.done():
                whole, kept = header["results"], header.get("replaced_dir")
                # Without any part, null is no answer.
                results = self._parts[batch] if whole is None else _results(whole)
                answer.set_result(BatchAnswer(results, None if kept is None else str(kept)))
        elif "proof" in header and batch in self._proofs:
            try:
                digests = await self._proofs[batch]
                stamps, differ = header["proof"], header.get("differ") or {}
                await on_proof(digests, checked(stamps, dict), checked(differ, dict))
            finally:
                if not header.get("more"):
                    self._proofs.pop(batch, None)
                    self._proved.set()

    def _fail(self, error: TunnelkitError) -> None:
        if self._failure is None:
            self._failure = error
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(self._failure)
                answer.exception()
        for proof in self._proofs.values():
            proof.cancel()
        self._proofs.clear()
        self._proved.set()


def _results(value: object) -> dict[str, tuple[str, str]]:
    return {
        str(path): (str(state), str(why)) for path, (state, why) in checked(value, dict).items()
    }


async def while_up(
    agent: FileAgent, work: Awaitable[_T], budget_s: float, *, outage_s: float = 0.0
) -> _T:
    """Await `work` for at most `budget_s`, and while the link is not away for over `outage_s`.

    Raises ConnectionFailed.
    """
    task = asyncio.ensure_future(work)
    seen_up = time.monotonic()
    try:
        async with asyncio.timeout(budget_s):
            while True:
                await asyncio.wait([task], timeout=_LINK_CHECK_S)
                if task.done():
                    return task.result()
                if agent.is_up:
                    seen_up = time.monotonic()
                elif time.monotonic() - seen_up >= outage_s:
                    raise _link_lost()
    except TimeoutError:
        raise ConnectionFailed(
            "the agent does not answer for files",
            cause=f"nothing for {budget_s:.0f} s: the file system there may hang",
            transient=True,
            hint="it is tried again; `tk run ls` shows whether the node's file system answers",
        ) from None
    finally:
        if not task.done():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([task])


def owner_json(claim: OwnerRecord | None) -> dict[str, str] | None:
    """Return the owner file's path and token as sent to the agent, or None."""
    return None if claim is None else {"file": claim.file, "id": claim.token}


def refusal(
    header: Mapping[str, object], host: str, root: str, claim: OwnerRecord | None
) -> TunnelkitError | MirrorHalted:
    """Return the error for the agent's refusal."""
    if header.get("error", header.get("code")) == "displaced":
        text = str(header.get("owner", ""))
        if claim is not None and claim.owner.id in text:
            return Fenced(
                "the mirror's channel to the agent is an old one",
                transient=True,
                hint="it is opened again by itself; try again",
            )
        return displaced(host, root, text)
    return NotThere(
        f"the agent can't use {root}",
        cause=str(header.get("message") or "it gave no reason"),
        transient=True,
        hint="is it still there? `tk down`, then `tk up` makes it again, and sends all",
    )


def _link_lost() -> ConnectionFailed:
    return ConnectionFailed(
        "the link to the agent broke",
        transient=True,
        hint="it is opened again by itself; try again",
    )


def _nonsense(text: str) -> MirrorError:
    return MirrorError(
        "the mirror's channel to the agent failed",
        cause=text,
        transient=True,
        hint="it is opened again by itself; if it lasts: tk bugreport",
    )
