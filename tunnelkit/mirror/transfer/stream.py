"""Run a remote command while a local thread writes its stdin or reads its stdout."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
import time
from collections.abc import Callable
from typing import IO

from tunnelkit.errors import ConnectionFailed, MissingProgram
from tunnelkit.mirror.transfer.tar_archive import Pipe, Stopped
from tunnelkit.remote_command import remote_command
from tunnelkit.remote_script import RemoteHost

_TICK_S = 0.5


def far_script(script: str, *args: str) -> str:
    """Return one command line that runs `script` under sh with `args` as $1..."""
    return remote_command(["sh", "-c", script, "tk", *args])


def broke_off(remote: RemoteHost, cause: str) -> ConnectionFailed:
    """Return the error of a transfer that did not finish."""
    return ConnectionFailed(
        f"the transfer to {remote.destination()} broke off",
        cause=cause,
        transient=True,
        hint="it goes on once the connection is back; see `tk status`",
    )


async def run_stream(
    remote: RemoteHost,
    command: str,
    work: Callable[[Pipe], None],
    *,
    stdin: IO[bytes] | int | None = None,
    stall_s: float,
    budget_s: float,
    quiet_s: float = 0.0,
) -> tuple[int, str]:
    """Run a remote command, with `work` in a thread at the other end of its stdin.

    stdin: a file or subprocess.DEVNULL. If given, `work` reads the command's stdout instead.
    Returns the exit code and the error output. Raises ConnectionFailed after `stall_s` without a
    byte, or after `budget_s` and `quiet_s` without one of `work`; and what `work` raises."""
    argv = [*remote.remote_shell(), "--", remote.destination(), command]
    reader, writer = os.pipe()
    ours, theirs = (writer, reader) if stdin is None else (reader, writer)
    with tempfile.TemporaryFile() as errors, contextlib.ExitStack() as stack:
        pipe = Pipe(ours)
        stack.callback(pipe.finish)
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=theirs if stdin is None else stdin,
                stdout=asyncio.subprocess.PIPE if stdin is None else theirs,
                stderr=errors,
                start_new_session=True,
            )
        except FileNotFoundError as error:
            raise MissingProgram(
                f"{argv[0]} is not installed on this computer",
                hint="install the OpenSSH client",
            ) from error
        finally:
            os.close(theirs)
        thread = asyncio.create_task(asyncio.to_thread(_quietly, work, pipe))
        beats = asyncio.create_task(_listen(process, pipe))
        try:
            await _until_done(remote, thread, beats, process, pipe, stall_s, budget_s, quiet_s)
        finally:
            await end(process)
            pipe.stop()
            beats.cancel()
            await asyncio.wait([thread, beats])
            errors.seek(0)
            said = summary(errors.read(1 << 16).decode("utf-8", "replace"))
        thread.result()
    assert process.returncode is not None
    return process.returncode, said


async def _until_done(
    remote: RemoteHost,
    thread: asyncio.Task[None],
    beats: asyncio.Task[None],
    process: asyncio.subprocess.Process,
    pipe: Pipe,
    stall_s: float,
    budget_s: float,
    quiet_s: float,
) -> None:
    begin = time.monotonic()
    waiting: set[asyncio.Task[None]] = {thread, beats}
    while waiting:
        if thread.done() and thread.exception() is not None:
            return  # don't wait for the remote command: its process is ended
        _, waiting = await asyncio.wait(waiting, timeout=_TICK_S)
        now = time.monotonic()
        if waiting and now - pipe.moved_at > stall_s:
            raise broke_off(remote, f"nothing came or went for {stall_s:.0f} s")
        if now > max(begin + budget_s, pipe.passed_at + quiet_s):
            raise broke_off(remote, f"it took over {now - begin:.0f} s")
    if thread.exception() is not None:
        return
    try:
        async with asyncio.timeout(stall_s):
            await process.wait()
    except TimeoutError:
        raise broke_off(remote, "its ssh did not end") from None


def _quietly(work: Callable[[Pipe], None], pipe: Pipe) -> None:
    """Run the thread's part. When it ends, the remote command sees the end of the stream."""
    try:
        with contextlib.suppress(Stopped):
            work(pipe)
    finally:
        pipe.finish()


async def _listen(process: asyncio.subprocess.Process, pipe: Pipe) -> None:
    """Read what the remote script prints: dots, which show that it is alive."""
    if process.stdout is None:
        return
    while await process.stdout.read(1 << 12):
        pipe.moved_at = time.monotonic()


async def end(process: asyncio.subprocess.Process) -> None:
    """End a child and its process group (rsync and its ssh).

    TERM lets both ends remove their temporaries."""
    if process.returncode is not None:
        return
    for number, patience_s in ((signal.SIGTERM, 3.0), (signal.SIGKILL, 3.0)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await process.wait()
                return


def summary(text: str) -> str:
    """Return rsync's own first complaints; the last line only repeats the exit code."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    complaints = [line for line in lines if not line.startswith("rsync error:")] or lines
    return "; ".join(dict.fromkeys(complaints[:3]))
