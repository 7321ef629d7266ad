"""Output of `tk logs JOB`: a job's log, by the session's connection or one of its own."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from tunnelkit.cli.logs.log_text import RankLines, TerminalText
from tunnelkit.cli.terminal.output import note, say
from tunnelkit.errors import TunnelkitError, UsageError

if TYPE_CHECKING:
    from tunnelkit.session.logs.place import LogPlaceInfo
    from tunnelkit.session.logs.reader import LogEvent
    from tunnelkit.session.runtime.paths import SessionPaths

    Event = LogPlaceInfo | LogEvent


@dataclass(frozen=True)
class JobLogOptions:
    """The words of `tk logs JOB`."""

    job: str | None
    follow: bool
    err: bool
    rank: int | None
    last_error: bool
    lines: int | None
    as_json: bool
    profile: str | None
    login: str | None
    file: str = ""

    @property
    def place_only(self) -> bool:
        """True if only the log's place is asked for."""
        return self.as_json and not self.last_error

    @property
    def last_bytes(self) -> int | None:
        """The number of bytes that are read from the end; None: all."""
        if not self.last_error:
            return None
        from tunnelkit.diagnosis.ended.log.streams import LONGEST_TEXT

        return LONGEST_TEXT


def show_job_log(options: JobLogOptions) -> None:
    """Print the log, its last error, or where it is. Raises TunnelkitError."""
    from tunnelkit.cli.terminal.context import run

    if options.follow and (options.last_error or options.as_json):
        raise UsageError(
            "-f shows a log as it grows, the other option asks once", hint="leave one out"
        )
    run(_show(options))


async def _show(options: JobLogOptions) -> None:
    async with aclosing(_events(options)) as events:
        place = cast("LogPlaceInfo", await anext(events))
        if options.place_only:
            import json

            say(json.dumps(place))
            return
        _introduce(place, options)
        if options.last_error:
            await _show_error(place, events, options)
        else:
            await _copy(place, events, options)


def _introduce(place: LogPlaceInfo, options: JobLogOptions) -> None:
    """Say what is not plain from the log itself."""
    if place["seen_s"] is not None:
        when = _date(place["seen_s"])
        note(
            f"the scheduler has forgotten job {place['job_id']}; tk saw its log at "
            f"{place['path']} ({when})"
        )
    if place["known_from"] == "files":
        written_s = place["written_s"]
        when = "" if written_s is None else f" (of {_date(written_s)})"
        note(
            f"the scheduler has forgotten job {place['job_id']}; this file has its number: "
            f"{place['path']}{when}"
        )
    if options.err and place["stderr_path"] is None:
        note(f"job {place['job_id']} writes stdout and stderr to one file")


def _date(time_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(time_s))


async def _show_error(
    place: LogPlaceInfo, events: AsyncIterator[Event], options: JobLogOptions
) -> None:
    from tunnelkit.cli.logs.last_error import show_last_error

    data = bytearray()
    async for event in events:
        if isinstance(event, bytes):
            data += event
            del data[: -(options.last_bytes or 1)]  # whatever the host sends
        elif isinstance(event, str):
            note(f"tk: {event}")
    show_last_error(bytes(data), place["path"], as_json=options.as_json, rank=options.rank)


async def _copy(place: LogPlaceInfo, events: AsyncIterator[Event], options: JobLogOptions) -> None:
    """Print the log as it comes."""
    output = _Output(options.rank)
    async for event in events:
        if isinstance(event, bytes):
            await output.write(event)
        elif isinstance(event, str):
            note(f"tk: {event}")
    await output.end()
    if options.rank is not None and not output.found:
        raise TunnelkitError(
            f"no line of rank {options.rank} in {place['path']}",
            hint="lines have a rank by `srun -l`, `mpirun --tag-output`, or torch's tracebacks",
        )


class _Output:
    """stdout: on a terminal without what it would obey, else byte for byte."""

    def __init__(self, rank: int | None) -> None:
        self._rank = None if rank is None else RankLines(rank)
        self._text = TerminalText() if sys.stdout.isatty() else None

    @property
    def found(self) -> bool:
        """True if a line was printed, or all are."""
        return self._rank is None or self._rank.found

    async def write(self, data: bytes, *, final: bool = False) -> None:
        """Print a part. Waits while stdout is full."""
        if self._rank is not None:
            data = self._rank.feed(data, final=final)
        if self._text is not None:
            data = self._text.feed(data, final=final).encode("utf-8", "replace")
        view = memoryview(data)
        while view:
            view = view[await asyncio.to_thread(os.write, sys.stdout.fileno(), view) :]

    async def end(self) -> None:
        """Print what was held back."""
        await self.write(b"", final=True)


async def _events(options: JobLogOptions) -> AsyncGenerator[Event]:
    """Yield the log by the session's connection, else by one of this command."""
    from tunnelkit.cli.terminal.context import find_session
    from tunnelkit.errors import NoSessionError

    if options.profile is None and options.login is None:
        try:
            paths = find_session()
        except NoSessionError:
            pass
        else:
            async with aclosing(_by_session(paths, options)) as events:
                async for event in events:
                    yield event
            return
    async with aclosing(_by_own_link(options)) as events:
        async for event in events:
            yield event


async def _by_session(paths: SessionPaths, options: JobLogOptions) -> AsyncGenerator[Event]:
    from tunnelkit.mux.loop_records import STDOUT, RecordReader
    from tunnelkit.session.runtime import control_client
    from tunnelkit.session.runtime.blocking_client import session_gone
    from tunnelkit.session.runtime.control_calls import JobLogStream

    stream = JobLogStream(
        job=options.job,
        file=options.file,
        err=options.err,
        follow=options.follow,
        place_only=options.place_only,
        lines=options.lines,
        last_bytes=options.last_bytes,
    )
    async with control_client.connect(paths) as session:
        channel, records = session.open(stream), RecordReader()
        while data := await channel.read():
            for record in records.feed(data):
                if record.kind == STDOUT:
                    yield record.payload
                else:
                    event = record.event()
                    place = event.get("place", event.get("text"))
                    yield cast("Event", place)
        end = await control_client.end_of(channel)
        if "failure" in end:
            raise TunnelkitError.from_json(end["failure"])
        if end.get("error"):
            raise session_gone()


async def _by_own_link(options: JobLogOptions) -> AsyncGenerator[Event]:
    from tunnelkit.cli.terminal.context import settings
    from tunnelkit.cli.terminal.tty import answer_prompt
    from tunnelkit.session.logs.cluster import own_log_cluster
    from tunnelkit.session.logs.place import WantedLog
    from tunnelkit.session.logs.read_log import LogRequest, read_log

    prompter = answer_prompt if sys.stdin.isatty() and sys.stderr.isatty() else None
    chosen = settings(profile=options.profile, cluster__login=options.login)
    request = LogRequest(
        WantedLog(options.job, options.err, file=options.file),
        follow=options.follow,
        place_only=options.place_only,
        lines=options.lines,
        last_bytes=options.last_bytes,
    )
    async with (
        own_log_cluster(chosen, prompter) as cluster,
        aclosing(read_log(cluster, request)) as events,
    ):
        async for event in events:
            yield event
