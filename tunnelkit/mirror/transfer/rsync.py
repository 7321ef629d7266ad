"""Runs one rsync at a time, over the link, with a list of names that tk has computed.

rsync writes to a temporary and renames (never --inplace), so a reader on the cluster sees the old
file or the new one. It never deletes: --delete is not used at all."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import tempfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from tunnelkit.errors import ConnectionFailed, MirrorError, MissingProgram
from tunnelkit.mirror.remote.login_shell import MODULE_HINT
from tunnelkit.mirror.transfer.base import FetchRule, Known, TransferResult
from tunnelkit.mirror.transfer.staging import StagingDirectory
from tunnelkit.mirror.transfer.stream import broke_off, end, summary
from tunnelkit.remote_script import RemoteHost, run_script

#: Exit codes: protocol stream broken, killed, timed out; ssh's own failure.
_LINK_CODES = frozenset({10, 12, 20, 30, 35, 255})
_NOT_FOUND = frozenset({126, 127})

# --files-from turns on -R and --dirs. The times of directories move with their content.
# The modes: as `scan.kept_mode`.
_BASE = ("-lptO", "--chmod=go-w,a-s,a-t", "--files-from=-", "--from0", "--protect-args")
_STALL_S = 15
_CHECKSUM_STALL_S = 120  # while it reads a big file, rsync may be silent
_QUIET_S = 60.0  # of a push: at least so long, and so long after each sign of progress
_VERSION = re.compile(r"\brsync +version v?(\d+)\.(\d+)")
_OLDEST = (3, 0)  # has --protect-args, without which the login shell interprets names
#: rsync's generator and receiver would make it side by side. One that comes second takes it for a
#: failure, leaves a symlink as it was, and rsync's exit code is 0 all the same.
_MAKE_DIRECTORY = 'mkdir -p -- "$1"'
_OCTAL = re.compile(rb"\\#([0-7]{3})")


def quote_shell(argv: Sequence[str]) -> str:
    """Return the words of a remote shell as one `rsync -e` argument.

    rsync splits at spaces and knows quotes, doubled inside themselves, but no backslashes."""
    return " ".join("'" + word.replace("'", "''") + "'" for word in argv)


def unescape(name: bytes) -> str:
    """Return the exact name for one that rsync printed (`\\#012` for a newline)."""
    plain = _OCTAL.sub(lambda match: bytes([int(match[1], 8)]), name)
    return os.fsdecode(plain)


def rsync_defect(version: str) -> str | None:
    """Return in a few words why an rsync is not usable, or None if it is.

    version: its output of `--version`; "" if there is no rsync."""
    if not version.strip():
        return "no rsync"
    if "openrsync" in version:
        return "only openrsync"
    found = _version(version)
    if found is None:
        return "an rsync of unknown version"
    return f"only rsync {found[0]}.{found[1]}" if found < _OLDEST else None


def _version(text: str) -> tuple[int, int] | None:
    match = _VERSION.search(text)
    return (int(match[1]), int(match[2])) if match is not None else None


class Rsync:
    """Runs the local rsync against one remote root."""

    def __init__(self, remote: RemoteHost, local_root: str, *, program: str = "rsync") -> None:
        self.sends_deltas = True
        self._remote = remote
        self._local_root = local_root
        self._program = program
        self._shows_progress = False
        self._compares_ns = False

    async def defect(self) -> str | None:
        """Return in a few words why this computer's rsync is not usable, or None if it is."""
        try:
            result = await self._run([self._program, "--version"], b"", budget_s=10.0)
        except MissingProgram:
            return rsync_defect("")
        version = result.stdout.decode("utf-8", "replace")
        found = _version(version) or (0, 0)
        self._shows_progress = found >= (3, 1)
        # Of earlier ones some would take all files for different.
        self._compares_ns = found >= (3, 2)
        return rsync_defect(version)

    async def push(
        self,
        paths: Collection[str],
        remote_root: str,
        *,
        size_bytes: int,
        known: Known | None = None,
        on_output: Callable[[bytes], None] | None = None,
    ) -> TransferResult:
        """See `Transfer.push`. rsync reads the files itself, so that `known` changes nothing."""
        # Same size and same second don't mean same content: --ignore-times.
        options = ["--ignore-times", f"--timeout={_STALL_S}"]
        listen = None
        if self._shows_progress:
            options += ["--info=progress2", "--no-human-readable", "--outbuf=N"]
            listen = on_output or _ignore
        return await self._transfer(options, paths, remote_root, size_bytes, listen)

    async def adopt(
        self, paths: Collection[str], remote_root: str, *, backup_dir: str, size_bytes: int
    ) -> TransferResult:
        """See `Transfer.adopt`."""
        await run_script(
            self._remote,
            _MAKE_DIRECTORY,
            [backup_dir],
            what=f"can't make {backup_dir}, where replaced files are kept",
            hint="is there a file of that name? Move it away",
        )
        options = (
            "--checksum",
            f"--timeout={_CHECKSUM_STALL_S}",
            "--backup",
            f"--backup-dir={backup_dir}",
            "--out-format=%i %n",
        )
        return await self._transfer(options, paths, remote_root, size_bytes)

    async def fetch(
        self,
        paths: Collection[str],
        remote_root: str,
        *,
        rule: FetchRule,
        size_bytes: int,
        listen: Callable[[bytes], None] | None = None,
    ) -> TransferResult:
        """See `Transfer.fetch`."""
        host = self._remote.destination()
        stage = await asyncio.to_thread(
            StagingDirectory, self._local_root, paths, rule=rule, size_bytes=size_bytes, host=host
        )
        options = ["--no-implied-dirs", f"--timeout={rule.stall_s}", *stage.options()]
        if not rule.newer_stays or rule.other.issuperset(paths):
            options.append("--ignore-times")
        elif self._compares_ns and await asyncio.to_thread(stage.keeps_ns):
            options.append("--modify-window=-1")
        if rule.partial_dir is not None:
            options.append(f"--partial-dir={rule.partial_dir}")
        transfer = self._transfer(options, paths, remote_root, size_bytes, stage=stage)
        try:
            result = await stage.watched(transfer, listen)
            await asyncio.to_thread(stage.place)
        except (ConnectionFailed, asyncio.CancelledError):
            await asyncio.to_thread(stage.place)  # complete files need not come again
            raise
        finally:
            await asyncio.to_thread(stage.remove)
        if stage.failed:
            why = next(iter(stage.failed.values()))
            came, failed = frozenset(stage.came), frozenset(stage.failed)
            return TransferResult(23, b"", result.error_text or why, came, failed)
        # An rsync that finds the laptop's file the same does not send it: it is not in `kept`.
        return replace(result, came=frozenset(stage.came), kept=frozenset(stage.kept))

    async def differing(
        self, paths: Collection[str], remote_root: str, *, size_bytes: int
    ) -> set[str]:
        """See `Transfer.differing`.

        Needed after a partial transfer: its messages don't name the failed files reliably."""
        options = (
            "--dry-run",
            "--checksum",
            f"--timeout={_CHECKSUM_STALL_S}",
            "--out-format=%i %n",
        )
        result = await self._transfer(options, paths, remote_root, size_bytes)
        return set(itemized(result.stdout))

    async def _transfer(
        self,
        options: Sequence[str],
        paths: Collection[str],
        remote_root: str,
        size_bytes: int,
        on_output: Callable[[bytes], None] | None = None,
        *,
        stage: StagingDirectory | None = None,
    ) -> TransferResult:
        """Run rsync. stage: receives the files; None: files are sent."""
        host = self._remote.destination()
        local = self._local_root if stage is None else str(stage.new)
        ends = [os.path.join(local, ""), f"{host}:{remote_root.rstrip('/')}/"]
        argv = [
            self._program,
            *_BASE,
            *options,
            f"--rsh={quote_shell(self._remote.remote_shell())}",
            "--",
            *(ends if stage is None else reversed(ends)),
        ]
        if stage is not None:
            argv = stage.bounded(argv)
        # An upper limit for a line of 256 KiB/s; each progress that is heard prolongs it. --timeout
        # notices a stall of the line, but not one of the file system there.
        budget_s = _QUIET_S + size_bytes / (256 << 10) + len(paths) / 50
        # rsync removes the `/`. Without it `#x` is a comment. With `./` the root itself would be
        # sent, too, and its remote permissions set to those on the laptop.
        names = b"".join(b"/" + os.fsencode(path) + b"\0" for path in sorted(paths))
        result = await self._run(argv, names, budget_s=budget_s, on_output=on_output)
        if result.exit_code == 0 or result.partial:
            return result
        raise self._failure(result, host)

    def _failure(self, result: TransferResult, host: str) -> Exception:
        text = result.error_text
        if result.exit_code in _NOT_FOUND:
            return MissingProgram(
                f"rsync is not found on {host}",
                cause=text,
                hint=f"install it there, or {MODULE_HINT}",
            )
        if "shell clean" in text:
            return MirrorError(
                f"rsync can't talk to {host}",
                cause="the login shell prints text before the command's own",
                hint="tk down, then tk up: files then go by tar; `tk doctor` names the file",
            )
        if result.exit_code in _LINK_CODES or result.exit_code < 0:
            return broke_off(self._remote, text or f"rsync exit code {result.exit_code}")
        return MirrorError(
            f"rsync to {host} failed",
            cause=text or f"exit code {result.exit_code}",
            transient=True,
            hint="it is tried again; `tk doctor` checks rsync, room and quota there",
        )

    async def _run(
        self,
        argv: Sequence[str],
        stdin: bytes,
        *,
        budget_s: float,
        on_output: Callable[[bytes], None] | None = None,
    ) -> TransferResult:
        # The user's RSYNC_* settings would change the options that tk relies on. C: names are
        # escaped.
        env = {key: value for key, value in os.environ.items() if not key.startswith("RSYNC_")}
        env["LC_ALL"] = "C"
        # stderr is a file, not a pipe: an ssh left behind could hold a pipe open.
        with tempfile.TemporaryFile() as errors:
            try:
                process = await asyncio.create_subprocess_exec(
                    *argv,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=errors,
                    env=env,
                    start_new_session=True,
                )
            except FileNotFoundError as error:
                raise MissingProgram(
                    f"{self._program} is not installed on this computer",
                    hint="install it (Debian: apt install rsync; macOS: brew install rsync)",
                ) from error
            loop = asyncio.get_running_loop()
            begin = loop.time()
            try:
                async with asyncio.timeout(budget_s) as limit:
                    if on_output is None:
                        stdout, _ = await process.communicate(stdin)
                    else:
                        stdout = b""
                        await _listen(process, stdin, _prolonging(limit, on_output))
            except TimeoutError as error:
                took_s = loop.time() - begin
                raise ConnectionFailed(
                    f"the transfer to {self._remote.destination()} took over {took_s:.0f} s",
                    transient=True,
                    hint="it is tried again; `tk doctor` checks the way there",
                ) from error
            finally:
                await end(process)
            errors.seek(0)
            text = summary(errors.read().decode("utf-8", "replace"))
        assert process.returncode is not None
        return TransferResult(process.returncode, stdout, text)


def _ignore(data: bytes) -> None:
    """Take progress that nobody wants to see."""


def _prolonging(
    limit: asyncio.Timeout, on_output: Callable[[bytes], None]
) -> Callable[[bytes], None]:
    """Return `on_output` that also puts the limit off: rsync writes only as data passes."""
    loop = asyncio.get_running_loop()

    def heard(data: bytes) -> None:
        limit.reschedule(max(limit.when() or 0.0, loop.time() + _QUIET_S))
        on_output(data)

    return heard


async def _listen(
    process: asyncio.subprocess.Process, stdin: bytes, on_output: Callable[[bytes], None]
) -> None:
    """Like `communicate`, but pass on the output as it comes."""
    assert process.stdin is not None and process.stdout is not None
    writer, reader = process.stdin, process.stdout

    async def feed() -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            writer.write(stdin)
            await writer.drain()
        writer.close()

    feeding = asyncio.create_task(feed())
    try:
        while data := await reader.read(1 << 16):
            on_output(data)
        await process.wait()
    finally:
        feeding.cancel()
        await asyncio.wait([feeding])


def itemized(stdout: bytes) -> list[str]:
    """Return the relative paths of all changes in `--out-format='%i %n'` output."""
    paths = []
    for line in stdout.split(b"\n"):
        change, space, name = line.partition(b" ")
        if space and len(change) >= 9 and change[:1] in b"<>ch.":
            paths.append(unescape(name.removesuffix(b"/")).removeprefix("./"))
    return paths
