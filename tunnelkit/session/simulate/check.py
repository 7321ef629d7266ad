"""The check of a script on the login host: one command, nothing submitted, nothing written."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tunnelkit import script_check_zip
from tunnelkit.config.schema import Settings
from tunnelkit.errors import SchedulerError
from tunnelkit.model import Completed
from tunnelkit.scheduler.base import Command, Scheduler
from tunnelkit.scheduler.factory import script_options
from tunnelkit.scheduler.script_options import (
    DryRun,
    ScriptOptions,
    ScriptRequest,
    Wanted,
    with_default,
)
from tunnelkit.session.agent.find_python import running
from tunnelkit.session.submit.send import mirrored_dir
from tunnelkit.simulate.cluster_checks import Asked, cluster_findings
from tunnelkit.simulate.finding import CheckAnswer, Finding, to_info
from tunnelkit.simulate.output_paths import output_directories
from tunnelkit.simulate.script_steps import ScriptNeeds, command_needs, script_needs
from tunnelkit.simulate.text_checks import text_findings

#: Limit for the command; the far side itself ends after 35 s.
LIMIT_S = 60.0
#: A script in Python is sent as a whole, others only as what was read of them.
_MOST_TEXT = 256 * 1024
_MOST_ANSWER = 4 << 20
#: Both parts come by stdin: the zip, of the length in argv, and the request. Nothing is written.
_BOOT = """
import os, sys
data = sys.stdin.buffer.read()
size = int(sys.argv[1])
try:
    fd = os.memfd_create("tk-check")
except (AttributeError, OSError):
    import tempfile
    file = tempfile.TemporaryFile()
    fd = file.fileno()
zip = data[:size]
while zip:
    zip = zip[os.write(fd, zip):]
sys.path.insert(0, "/proc/self/fd/%d" % fd)
from tunnelkit.script_check.main import main
main(data[size:].decode(), sys.argv[2])
"""


@dataclass(frozen=True)
class CheckHost:
    """run: runs a command on the login host. name: its name. scheduler: None if it has none."""

    run: Callable[[Command], Awaitable[Completed]]
    name: str
    scheduler: Scheduler | None
    settings: Settings


@dataclass(frozen=True)
class ToCheck:
    """A script, or a command (then `words`), with the scheduler's options and the local directory.

    wanted: what tk's own options ask for."""

    name: str
    text: bytes
    options: Sequence[str]
    here: Path
    words: Sequence[str] = ()
    wanted: Wanted = field(default_factory=Wanted)


async def check(host: CheckHost, what: ToCheck) -> CheckAnswer:
    """Look at all that the job needs. Raises SchedulerError, ConnectionFailed."""
    begun_s = time.monotonic()
    options = _options(host)
    if options is not None:
        what = _complete(what, options, host.settings)
    asked, request = _asked(what, options), _request(host, what, options)
    found: list[Finding] = []
    if options is not None and not asked.is_command:
        found += text_findings(what.text, options, asked.request)
    answer = await _ask(host, request)
    found += cluster_findings(answer, asked)
    directory = answer.get("directory")
    path = directory.get("path") if isinstance(directory, dict) else ""
    return {
        "cluster": host.name,
        "directory": path[:1000] if isinstance(path, str) else "",
        "seconds": round(time.monotonic() - begun_s, 2),
        "findings": [to_info(one) for one in found],
    }


def _complete(what: ToCheck, options: ScriptOptions, settings: Settings) -> ToCheck:
    """Return it with all options in the scheduler's words, and a script for a command."""
    given = [*what.options, *options.asking(what.wanted)]
    if not what.words:
        return replace(what, options=given)
    given = with_default(options, as_for_up(settings), given)
    return replace(what, text=b"#!/bin/sh\n", options=given)


def as_for_up(settings: Settings) -> Wanted:
    """Return what `tk up` would ask for: a command's job, where its line says no more."""
    ask = settings.allocation
    return Wanted(
        ask.mem, ask.cpus, ask.time_limit_s, ask.partition, ask.account, ask.qos, ask.gpus
    )


def _options(host: CheckHost) -> ScriptOptions | None:
    """Return the cluster's scheduler as a reader of scripts."""
    return None if host.scheduler is None else script_options(host.scheduler.name, host.scheduler)


def _asked(what: ToCheck, options: ScriptOptions | None) -> Asked:
    is_command = bool(what.words)
    job = _job(what, options)
    if job.in_image:
        # The login host has none of its files.
        needs = ScriptNeeds((), False, ())
    else:
        needs = command_needs(what.words) if is_command else script_needs(what.text)
    return Asked(options, job, needs, is_command)


def _job(what: ToCheck, options: ScriptOptions | None) -> ScriptRequest:
    if options is None:
        return ScriptRequest()
    return options.request([*options.words(what.text), *what.options])


def _request(host: CheckHost, what: ToCheck, options: ScriptOptions | None) -> Mapping[str, object]:
    asked = _asked(what, options)
    needs: ScriptNeeds = asked.needs
    ask = DryRun(()) if options is None else options.dry_run(what.text, what.options)
    job_name = asked.request.name or what.name
    return {
        "directory": mirrored_dir(host.settings, what.here),
        "chdir": asked.request.directory,
        "outputs": output_directories(asked.request.outputs, job_name),
        "interpreter": list(needs.interpreter),
        "programs": [path for path, _ in needs.programs],
        "argv": list(ask.argv),
        "stdin": ask.stdin.decode("latin-1"),
        "steps": [{"kind": one.kind, "words": list(one.words)} for one in needs.steps],
        "text": what.text[:_MOST_TEXT].decode("utf-8", "replace") if needs.is_python else "",
        "login": needs.login,
        "mirrored": _mirrored(host.settings),
    }


def _mirrored(settings: Settings) -> list[str]:
    """Return the directories on the cluster in which a clone may lie: nothing of them is run."""
    mirror = settings.mirror
    if not mirror.enabled or settings.config_file is None:
        return []
    return [mirror.remote, *(one.remote for one in mirror.also)]


async def _ask(host: CheckHost, request: Mapping[str, object]) -> Mapping[str, object]:
    mark = f"tk-{secrets.token_hex(8)}"
    data = script_check_zip.build().data
    argv = running(host.settings.cluster.python, "-c", [_BOOT, str(len(data)), mark])
    done = await host.run(Command(tuple(argv), data + json.dumps(request).encode()))
    _, _, rest = done.stdout[-_MOST_ANSWER:].rpartition(f"\n{mark} ".encode())
    try:
        answer = json.loads(rest.partition(b"\n")[0].decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        lines = done.error_text.splitlines()
        raise SchedulerError(
            f"the check on {host.name} gave no answer",
            cause=lines[-1][:300] if lines else f"exit status {done.exit_code}",
            hint="`tk doctor` checks the Python there; --no-check does without",
        )
    return answer
