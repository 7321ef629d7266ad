"""Exec over WebSocket, `v5.channel.k8s.io`: a process in a pod, and its streams as channels."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import struct

from tunnelkit.lab.kube.pods import Pod
from tunnelkit.lab.kube.wire import (
    CLOSE,
    PING,
    PONG,
    Json,
    Request,
    failure,
    frame,
    read_frame,
    switch,
)

_PIECE_BYTES = 32768
_NORMAL = struct.pack("!H", 1000)


async def _start(pod: Pod, argv: list[str], *, takes_stdin: bool) -> asyncio.subprocess.Process:
    """Start a process in the pod. Raises OSError, IndexError."""
    pipe, env = asyncio.subprocess.PIPE, pod.environment()
    pod.starting += 1
    try:
        if pod.is_killed:
            raise ProcessLookupError(3, "container not running")
        program = shutil.which(argv[0], path=env["PATH"]) if "/" not in argv[0] else argv[0]
        if program is None:
            raise FileNotFoundError(2, "executable file not found in $PATH")
        return await asyncio.create_subprocess_exec(
            *argv,
            executable=program,
            stdin=pipe if takes_stdin else asyncio.subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            cwd=pod.cwd,
            env=env,
            start_new_session=True,
        )
    finally:
        pod.starting -= 1


async def serve_exec(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: Request, pod: Pod
) -> None:
    """Run the command and carry its streams. As with the real one, a cut stream ends the
    process's stdin, and the process lives on."""
    switch(writer, request)
    # "Established": an empty message on stdout.
    writer.write(frame(b"\1"))
    argv = request.query.get("command", [])
    try:
        process = await _start(pod, argv, takes_stdin=request.first("stdin") in ("true", "1"))
    except (OSError, IndexError) as error:
        why = error.strerror if isinstance(error, OSError) else "no command"
        said = f'exec failed: unable to start container process: exec: "{argv[:1]}": {why}'
        await _finish(writer, failure(500, "InternalError", said))
        return
    client = asyncio.create_task(_from_client(reader, writer, process))
    outputs = [(process.stdout, 1), (process.stderr, 2)]
    try:
        await asyncio.gather(*(_to_client(source, writer, channel) for source, channel in outputs))
        await _finish(writer, _status(await process.wait()))
    finally:
        client.cancel()
        await asyncio.gather(client, return_exceptions=True)


async def _finish(writer: asyncio.StreamWriter, status: Json) -> None:
    with contextlib.suppress(OSError):
        writer.write(frame(b"\3" + json.dumps(status).encode()) + frame(_NORMAL, CLOSE))
        await writer.drain()


async def _to_client(
    source: asyncio.StreamReader | None, writer: asyncio.StreamWriter, channel: int
) -> None:
    assert source is not None
    while data := await source.read(_PIECE_BYTES):
        with contextlib.suppress(OSError):  # a stream that is cut: what is written goes nowhere
            writer.write(frame(bytes((channel,)) + data))
            await writer.drain()


async def _from_client(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    process: asyncio.subprocess.Process,
) -> None:
    try:
        while True:
            opcode, data = await read_frame(reader)
            if opcode == CLOSE:
                break
            if opcode == PING:
                writer.write(frame(data, PONG))
            elif process.stdin is not None and data[:1] == b"\0":
                process.stdin.write(data[1:])
                await process.stdin.drain()
            elif process.stdin is not None and data[:2] == b"\xff\0":
                process.stdin.close()
    except (OSError, EOFError):
        pass
    finally:
        if process.stdin is not None:
            process.stdin.close()


def _status(code: int) -> Json:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    status = 128 - code if code < 0 else code
    return {
        "metadata": {},
        "status": "Failure",
        "reason": "NonZeroExitCode",
        "message": f"command terminated with non-zero exit code: exit status {status}",
        "details": {"causes": [{"reason": "ExitCode", "message": str(status)}]},
    }
