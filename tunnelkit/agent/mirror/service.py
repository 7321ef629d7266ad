"""The agent's services for the mirror: its channels, and checks of what was sent."""

import asyncio
import contextlib
import functools
import itertools
import os
from typing import Dict, List, Optional, Set, Tuple

from tunnelkit.agent.mirror.batch_channel import BatchChannel, broken, new_nonce
from tunnelkit.agent.mirror.dirfd_tree import DirfdTree, open_directory
from tunnelkit.agent.mirror.file_thread import FileGate, FileThread
from tunnelkit.agent.mirror.root import MirroredRoot, RootRefused
from tunnelkit.agent.mirror.verify import Cleaning, SentFile, Verification, differing
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.parcels import checked, encode
from tunnelkit.mux.tasks import cancel_all, start

#: What hangs for longer at the end is left to itself.
_END_S = 3.0
_AT_ONCE = 64


class MirrorService:
    """Serves channels of type "mirror" and the calls about files. `close` at the end.

    gate: closed while a batch becomes visible; wait for it (`wait_open`) before a program
    begins, so that nobody runs half a checkout. instance: this process and no other.
    """

    def __init__(self) -> None:
        self.gate = FileGate()
        self.instance = os.urandom(8).hex()
        self._nonces: Set[str] = set()
        self._reader = FileThread("tk-mirror-reader")
        self._tasks: Set[asyncio.Task[None]] = set()
        #: Of channels that are over: their temporaries go.
        self._closing: Set[asyncio.Future[None]] = set()
        self._turns = _Turns()

    def serve(self, channel: Channel, header: Dict[str, object]) -> None:
        """A mirror's channel was opened: serve it to its end."""
        start(self._tasks, self._serve(channel, header))

    async def close(self) -> None:
        """End all channels; what is staged goes."""
        await cancel_all(*self._tasks)
        if self._closing:
            await asyncio.wait(list(self._closing), timeout=_END_S)
        self._reader.end()

    # -- channels ---------------------------------------------------------

    async def _serve(self, channel: Channel, header: Dict[str, object]) -> None:
        worker = FileThread("tk-mirror")
        nonce = new_nonce()
        self._nonces.add(nonce)
        batches: Optional[BatchChannel] = None
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            opening = worker.do(_open, str(header.get("root", "")), header.get("owner"))
            root, identity = await _kept(opening)
            send = functools.partial(_send, asyncio.get_running_loop(), channel)
            batches = BatchChannel(root, nonce, self.gate, send)
            await self._turns.take(identity, over)
            hello = encode({"ok": True, "instance": self._at(identity), "nests": True})
            channel.write_nowait(hello)
            await _Feed(channel, batches, worker).run()
        except RootRefused as refused:
            channel.write_nowait(encode(refused.as_json()))
        except (TypeError, KeyError) as error:
            channel.write_nowait(broken("protocol", error))
        finally:
            channel.close({})
            await self._clean_up(worker, nonce, batches, over)

    async def _clean_up(
        self,
        worker: FileThread,
        nonce: str,
        batches: Optional[BatchChannel],
        over: "asyncio.Future[None]",
    ) -> None:
        if batches is None:
            worker.end()
            self._nonces.discard(nonce)
            return
        batches.stop()
        closing = worker.do(batches.close)
        worker.end()
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        closing.add_done_callback(lambda _: self._nonces.discard(nonce))
        closing.add_done_callback(lambda _: over.set_result(None))
        # If we are cancelled meanwhile, `close` waits for it.
        await asyncio.wait([closing], timeout=_END_S)

    # -- calls ------------------------------------------------------------

    async def verify(self, params: Dict[str, object]) -> Dict[str, object]:
        """RPC `mirror.verify`, see PROTOCOL.md."""
        files: List[SentFile] = checked(params.get("files") or [], list)
        opening = self._reader.do(_open, str(params["root"]), params.get("owner"))
        try:
            root, identity = await _kept(opening)
        except RootRefused as refused:
            fields = refused.as_json()
            return {"code": fields.pop("error"), **fields}
        tree = DirfdTree(root.fd)
        try:
            check = Verification(tree, files)
            clean = Cleaning(tree, files if params.get("clean") else [], self._nonces)
            while await self._reader.do(check.go_on):
                pass
            while params.get("clean") and await self._reader.do(clean.go_on):
                pass
        finally:
            # After the slice that may still run, if we were cancelled.
            self._reader.do(tree.close)
            self._reader.do(root.close)
        return {
            "instance": self._at(identity),
            "differ": check.differ,
            "stamps": check.stamps,
            "cleaned": clean.cleaned,
        }

    def _at(self, identity: Tuple[int, int]) -> str:
        """This process at that root: a directory in its place has proved nothing."""
        return f"{self.instance}{identity}"

    async def differing(self, params: Dict[str, object]) -> List[str]:
        """RPC `mirror.differing`: {"root": ..., "expected": {path: sha256 | null}}."""
        expected = iter(checked(params["expected"], dict).items())
        base = os.path.expanduser(str(params["root"]))
        differ: List[str] = []
        while True:
            some = dict(itertools.islice(expected, _AT_ONCE))
            if not some:
                return differ
            differ += await self._reader.do(_differing, base, some)


#: An open root, and its device and inode.
_Opened = Tuple[MirroredRoot, Tuple[int, int]]
#: A channel's task, and what is set once nothing more comes of it.
_Turn = Tuple["asyncio.Task[None]", "asyncio.Future[None]"]


class _Turns:
    """One channel at a time for each root: what the last one began is over, published or gone,
    before the next one says hello."""

    def __init__(self) -> None:
        self._taken: Dict[Tuple[int, int], _Turn] = {}

    async def take(self, root: Tuple[int, int], over: "asyncio.Future[None]") -> None:
        """Called by a channel's own task: end the channel before it and wait for that. over: set
        once nothing more comes of this one."""
        task: Optional[asyncio.Task[None]] = asyncio.current_task()
        assert task is not None
        before, self._taken[root] = self._taken.get(root), (task, over)
        over.add_done_callback(lambda _: self._leave(root, over))
        if before is not None:
            before[0].cancel()
            await asyncio.wait([before[1]])

    def _leave(self, root: Tuple[int, int], over: "asyncio.Future[None]") -> None:
        if root in self._taken and self._taken[root][1] is over:
            del self._taken[root]


class _Feed:
    """Gives the worker what comes, much at once; meanwhile the channel's window fills.

    By callbacks: a task that waits for the channel would be a turn of the loop later.
    """

    def __init__(self, channel: Channel, batches: BatchChannel, worker: FileThread) -> None:
        self._channel = channel
        self._batches = batches
        self._worker = worker
        self._is_busy = False
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Return at the channel's end. Raises what the work raised."""
        self._channel.watch(self._news, None)
        try:
            self._news()
            await self._over
        finally:
            self._channel.watch(None, None)

    def _news(self) -> None:
        if self._is_busy or self._over.done():
            return
        data = self._channel.read_nowait()
        if self._channel.is_over or (not data and self._channel.at_eof):
            self._over.set_result(None)
        elif data:
            self._is_busy = True
            self._worker.do(self._batches.feed, data).add_done_callback(self._fed)

    def _fed(self, feeding: "asyncio.Future[bool]") -> None:
        self._is_busy = False
        if feeding.cancelled() or self._over.done():
            return
        error = feeding.exception()
        if error is not None:
            self._over.set_exception(error)
        elif not feeding.result():
            self._over.set_result(None)
        else:
            self._news()


async def _kept(opening: "asyncio.Future[_Opened]") -> _Opened:
    """Its result; if we are cancelled before, the root that it then brings is closed."""
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_close_root)
        raise


def _close_root(opening: "asyncio.Future[_Opened]") -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result()[0].close()


def _open(path: str, owner: object) -> _Opened:
    root = MirroredRoot(path, None if owner is None else checked(owner, dict))
    return root, root.identity


def _differing(base: str, expected: Dict[str, Optional[str]]) -> List[str]:
    try:
        fd = open_directory(base.encode("utf-8", "surrogateescape"))
    except OSError:
        return [path for path, digest in expected.items() if digest is not None]
    tree = DirfdTree(fd)
    try:
        return differing(tree, expected)
    finally:
        tree.close()
        os.close(fd)


def _send(loop: asyncio.AbstractEventLoop, channel: Channel, data: bytes) -> None:
    """From the worker's thread."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(_write, channel, data)


def _write(channel: Channel, data: bytes) -> None:
    if not channel.is_over:
        channel.write_nowait(data)
