"""One laptop's mirror channel, as its worker thread serves it: parcels in, answers out."""

import itertools
import os
from typing import Callable, ContextManager, Dict, Iterator, TypeVar

from tunnelkit.agent.mirror.dirfd_tree import DirfdTree, text_of
from tunnelkit.agent.mirror.publish import publish
from tunnelkit.agent.mirror.replaced_files import REPLACED_DIR
from tunnelkit.agent.mirror.root import MirroredRoot, RootRefused
from tunnelkit.agent.mirror.staging import PART_PREFIX, BadParcel, StagedBatch
from tunnelkit.agent.mirror.verify import prove
from tunnelkit.mux.parcels import ParcelCutter, ParcelError, checked, encode

#: Paths per answer: a header has its limit.
_ANSWER_PATHS = 10_000
#: One batch at a time, and saves that overtake a big file in it.
_OPEN_BATCHES = 2

_T = TypeVar("_T")


class BatchChannel:
    """Takes what comes on a channel. All in one thread but `stop`; `close` at the end.

    nonce: tells the temporaries of this channel from all others. gate: closed while a batch
    becomes visible. send: called with each answer.
    """

    def __init__(
        self,
        root: MirroredRoot,
        nonce: str,
        gate: ContextManager[None],
        send: Callable[[bytes], None],
    ) -> None:
        self._root = root
        self._gate = gate
        self._send = send
        self._cutter = ParcelCutter()
        #: Open batches by number. What comes belongs to the last one.
        self._open: Dict[int, StagedBatch] = {}
        self._stopped = False
        numbers = itertools.count(1)
        prefix = f"{PART_PREFIX}{nonce}-".encode()
        self._name = lambda: b"%s%d" % (prefix, next(numbers))

    def stop(self) -> None:
        """Nobody waits any more: what comes is not looked at."""
        self._stopped = True

    def feed(self, data: bytes) -> bool:
        """Take the next bytes. False: close the channel; the reason was sent."""
        try:
            for header, content in self._cutter.feed(data):
                if self._stopped:
                    return False
                self._take(header, content)
            return True
        except RootRefused as refused:
            answer = encode(refused.as_json())
        except (ParcelError, BadParcel, KeyError, ValueError, TypeError, AttributeError) as error:
            answer = broken("protocol", error)
        except OSError as error:
            answer = encode({"error": "failed", "message": error.strerror or str(error)})
        except Exception as error:
            # Whatever the error is, the laptop must not wait without end.
            answer = broken("failed", error)
        self._send(answer)
        return False

    def close(self) -> None:
        """Remove what is staged; let go of the root."""
        while self._open:
            self._forget()
        self._root.close()

    def _take(self, header: Dict[str, object], data: bytes) -> None:
        op = checked(header["op"], str)
        if op == "begin":
            self._begin(checked(header["batch"], int), str(header.get("replaced") or ""))
        elif op == "abort":
            self._abort(checked(header["batch"], int))
        elif not self._open:
            raise BadParcel(f"{op!r} without a batch")
        elif op == "commit":
            self._commit(checked(header["batch"], int))
        elif op in _OPS:
            _OPS[op](self._last(), header, data)
        else:
            raise BadParcel(f"unknown op {op!r}")

    def _last(self) -> StagedBatch:
        return self._open[next(reversed(self._open))]

    def _begin(self, number: int, replaced: str) -> None:
        if number in self._open or len(self._open) == _OPEN_BATCHES:
            raise BadParcel(f"batch {number} can't begin now")
        self._open[number] = StagedBatch(DirfdTree(self._root.fd), self._name, replaced)

    def _abort(self, number: int) -> None:
        """Discard the batch, and one within it. It may be over already."""
        while number in self._open:
            self._forget()

    def _commit(self, number: int) -> None:
        batch = self._last()
        if self._open.get(number) is not batch:
            raise BadParcel("another batch is open")
        self._root.check()
        batch.complete()
        results = publish(batch, self._root.fd, self._gate)
        self._forget()
        replaced = any(result.state == "replaced" for result in results.values())
        where = os.path.join(self._root.path, text_of(REPLACED_DIR + b"/" + batch.replaced))
        parts = list(_pieces(results))
        # A client of an earlier version must not take one part for all: null ends its channel.
        whole = results if len(parts) == 1 else None
        for part in parts if whole is None else ():
            self._send(encode({"batch": number, "part": part}))
        answer = {
            "batch": number,
            "committed": True,
            "results": whole,
            "replaced_dir": where if replaced else None,
        }
        self._send(encode(answer))
        self._prove(number, batch)

    def _prove(self, number: int, batch: StagedBatch) -> None:
        tree = DirfdTree(self._root.fd)
        try:
            proof, differ = prove(tree, batch.items.values(), lambda: self._stopped)
        finally:
            tree.close()
        if self._stopped:
            return
        pieces = list(_pieces(proof))
        for piece in pieces:
            more = piece is not pieces[-1]
            why = {} if more else differ
            self._send(encode({"batch": number, "proof": piece, "differ": why, "more": more}))

    def _forget(self) -> None:
        """Discard the last batch."""
        _, batch = self._open.popitem()
        batch.discard()
        batch.tree.close()


def _pieces(answers: Dict[str, _T]) -> Iterator[Dict[str, _T]]:
    entries = list(answers.items())
    for start in range(0, len(entries) or 1, _ANSWER_PATHS):
        yield dict(entries[start : start + _ANSWER_PATHS])


def broken(code: str, error: Exception) -> bytes:
    """The last answer on a channel that this error ends."""
    return encode({"error": code, "message": f"{type(error).__name__}: {error}"})


def new_nonce() -> str:
    """For one channel's temporaries."""
    return os.urandom(6).hex()


_OPS: Dict[str, Callable[[StagedBatch, Dict[str, object], bytes], None]] = {
    "dir": StagedBatch.directory,
    "file": StagedBatch.file,
    "data": StagedBatch.piece,
    "drop": StagedBatch.drop,
    "link": StagedBatch.link,
    "meta": StagedBatch.meta,
    "del": StagedBatch.delete,
    "rmdir": StagedBatch.rmdir,
}
