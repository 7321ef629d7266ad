"""Contents of a bug report: collects, scrubs and packs the files."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import gzip
import io
import json
import os
import platform
import pwd
import re
import socket
import sys
import tarfile
import time
from collections.abc import Iterable, Iterator, Sequence
from importlib import metadata
from pathlib import Path

from tunnelkit import __version__
from tunnelkit.child_process import run_child
from tunnelkit.cluster_dir import TK_DIR
from tunnelkit.config.schema import KEYS, Settings
from tunnelkit.errors import TunnelkitError, UsageError
from tunnelkit.session.doctor.check import Check, CheckResult
from tunnelkit.session.doctor.context import CheckContext
from tunnelkit.session.doctor.runner import run_checks
from tunnelkit.session.report.diagnosis import last_diagnosis
from tunnelkit.session.report.patterns import OC_CONTEXT, SECRET_VARIABLE
from tunnelkit.session.report.scrub import Scrubber
from tunnelkit.session.runtime import completion_cache
from tunnelkit.session.runtime.event_log import read_events

#: Limits per log: its end matters most, and reports are sent by mail.
_LOG_BYTES = 512 * 1024
_OUTPUT_BYTES = 64 * 1024
_EVENTS = 2000
_PACKAGES = ("typer", "watchdog", "pathspec", "debugpy", "platformdirs", "paramiko", "sshtunnel")
#: $1: tk's directory as in the settings.
_JOB_LOGS = (
    TK_DIR
    + r"""
tk_dir "$1" 2>/dev/null && cd "$d/jobs" 2>/dev/null || exit 0
ls -t | grep '\.log$' | head -n 3 | while IFS= read -r f; do
  printf 'tk-file %s\n' "$f"
  tail -c 65536 "./$f"
  echo
done
"""
)
_README = """\
A report of tk {version}, made {when}.

{files}

Host names, user names and home directories are pseudonyms (the same name is the same
pseudonym in all files); keys, tokens, passwords and values of environment variables
were taken out as far as they can be recognised. Names of files and directories, the
names of accounts and partitions, and what programs printed are still in it.
Read it before you send it.
"""


async def gather(
    scene: CheckContext, checks: Sequence[Check], *, with_output: bool = True
) -> tuple[dict[str, str], Scrubber]:
    """Return the report's scrubbed files by name, and the scrubber.

    checks: those of `tk doctor`. with_output: True to include the output of the user's programs.
    """
    results = await run_checks(checks, scene)
    raw: dict[str, object] = {
        "versions.json": await _versions(),
        "doctor.json": {result.name: _without_name(result) for result in results},
        "config.json": _config(scene),
        "status.json": scene.status,
        "events.jsonl": read_events(scene.paths.events, _EVENTS),
        "session.log": _tail(scene.paths.session_log, _LOG_BYTES),
        "jobs.log": await _job_logs(scene),
        "diagnosis.json": last_diagnosis(scene.paths.diagnosis),
    }
    if with_output:
        raw["loop.log"] = _tail(scene.paths.loop_log, _OUTPUT_BYTES)
    scrubber = _scrubber(scene, results)
    files = {name: _scrubbed(scrubber, content) for name, content in raw.items() if content}
    when = time.strftime("%Y-%m-%d %H:%M:%S %z")
    listed = "\n".join(f"  {name:<14} {len(text)} characters" for name, text in files.items())
    readme = _README.format(version=__version__, when=when, files=listed)
    return {"README.txt": readme, **files}, scrubber


def write(files: dict[str, str], path: Path) -> None:
    """Pack the files, 0600. Raises UsageError if the path can't be written or exists."""
    buffer = io.BytesIO()
    # Neither archive contains the user's name or a path.
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=buffer) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for name, text in files.items():
            data = text.encode()
            info = tarfile.TarInfo(f"tk-bugreport/{name}")
            info.size, info.mode, info.mtime = len(data), 0o600, int(time.time())
            archive.addfile(info, io.BytesIO(data))
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise UsageError(
            f"can't write the report to {path}",
            cause=error.strerror,
            hint="name another file: tk bugreport -o FILE",
        ) from None
    with os.fdopen(fd, "wb") as file:
        file.write(buffer.getvalue())


# -- contents -----------------------------------------------------------------


def _without_name(result: CheckResult) -> dict[str, object]:
    return {key: value for key, value in result.to_json().items() if key != "name"}


async def _versions() -> dict[str, object]:
    found: dict[str, object] = {
        "tk": __version__,
        "python": sys.version,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "packages": {name: _version_of(name) for name in _PACKAGES},
        # Only the names of those that are set, not their values.
        "environment": sorted(name for name in os.environ if name.startswith("TK_")),
    }
    for program, word in (("ssh", "-V"), ("rsync", "--version"), ("sshfs", "--version")):
        try:
            done = await run_child([program, word], timeout_s=5.0)
            said = done.text + done.error_text
        except (TunnelkitError, TimeoutError, OSError) as error:
            said = str(error)
        found[program] = said.strip().partition("\n")[0]
    return found


def _version_of(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _config(scene: CheckContext) -> dict[str, object]:
    try:
        settings = scene.settings
    except TunnelkitError as error:
        return {"error": error.to_json()}
    return {
        name: {"value": settings.written(name), "origin": str(settings.origins[name])}
        for name in KEYS
    }


def _tail(path: Path, limit_bytes: int) -> str:
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - limit_bytes))
            data = file.read()
    except OSError:
        return ""
    if size > limit_bytes:
        # The first line may be cut within a secret, which then matches no pattern.
        data = data.partition(b"\n")[2]
    return data.decode("utf-8", "replace")


async def _job_logs(scene: CheckContext) -> str:
    """Return the ends of the jobs' logs; "" if the doctor has not reached the login host."""
    try:
        async with asyncio.timeout(20.0):
            return (await scene.script(_JOB_LOGS, scene.settings.cluster.directory)).text
    except (TunnelkitError, TimeoutError):
        return ""


# -- scrubbing ----------------------------------------------------------------


def _scrubbed(scrubber: Scrubber, content: object) -> str:
    """Return a log as text, a list as JSON lines, another object as JSON."""
    if isinstance(content, str):
        return scrubber.text(content)
    if isinstance(content, list):
        return "".join(json.dumps(scrubber.json(one)) + "\n" for one in content)
    return json.dumps(scrubber.json(content), indent=2) + "\n"


def _scrubber(scene: CheckContext, results: Iterable[CheckResult]) -> Scrubber:
    data = {result.name: result.data for result in results}
    settings: Settings | None = None
    with contextlib.suppress(TunnelkitError):
        settings = scene.settings
    hosts = {socket.gethostname(), platform.node(), *_hosts(scene, settings)}
    users = {*_own_names()}
    homes = {str(Path.home()), os.environ.get("HOME", "")}
    for destination in [*hosts]:
        user, at, host = destination.rpartition("@")
        if at:
            users.add(user)
            hosts.discard(destination)
            hosts.add(host)
    if settings is not None and (found := OC_CONTEXT.match(settings.cluster.context or "")):
        hosts.add(found[2])
        users.add(found[4])
    asked = data.get("ssh-config", {})
    users.add(str(asked.get("user") or ""))
    hosts |= {str(asked.get("hostname") or ""), *_in_way(str(asked.get("way") or ""), users)}
    agent = scene.status["agent"] if scene.status is not None else None
    for path in (data.get("home", {}).get("path"), agent.get("home") if agent else None):
        if path:
            homes.add(str(path))
    users |= {Path(home).name for home in homes if home.startswith(("/home/", "/Users/"))}
    secrets = [
        value
        for name, value in os.environ.items()
        if SECRET_VARIABLE.search(name) and len(value) >= 6 and not value.startswith("/")
    ]
    return Scrubber(hosts=hosts, users=users, homes=homes, secrets=secrets)


def _hosts(scene: CheckContext, settings: Settings | None) -> Iterator[str]:
    if settings is not None:
        if settings.cluster.login is not None:
            yield _without_port(settings.cluster.login.destination)
        yield from (_without_port(jump.destination) for jump in settings.cluster.jump)
        yield from completion_cache.recall("nodes", scene.project_dir)
    if (status := scene.status) is not None:
        yield from filter(None, (status["login"], status["node"], status["wanted_node"]))
        yield from status["job"]["nodes"] if status["job"] else []


def _without_port(destination: str) -> str:
    return re.sub(r":\d+$", "", destination)


def _in_way(way: str, users: set[str]) -> Iterator[str]:
    """Yield the hosts of a ProxyJump, or all words of a ProxyCommand that may be hosts.

    users: gets the users that are found.
    """
    for word in re.split(r"[\s,]+", way):
        user, _, host = word.rpartition("@")
        if user:
            users.add(user)
        if user or "." in host or " " not in way:
            yield _without_port(host)


def _own_names() -> Iterator[str]:
    with contextlib.suppress(KeyError, OSError):
        yield getpass.getuser()
    yield from (os.environ.get(name, "") for name in ("USER", "LOGNAME", "SUDO_USER"))
    with contextlib.suppress(KeyError):
        entry = pwd.getpwuid(os.getuid())
        yield entry.pw_name
        full = entry.pw_gecos.partition(",")[0].strip()
        if full.lower() != entry.pw_name:
            yield full
