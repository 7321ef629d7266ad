"""`tk doctor`: checks from the laptop to the node, each with a fix."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from tunnelkit.cli.completion.options import link_option, login_option, profile_option
from tunnelkit.cli.lazy_typer import typer
from tunnelkit.cli.terminal.output import paint, say
from tunnelkit.errors import ExitCode, NotTrusted, TunnelkitError

if TYPE_CHECKING:
    from tunnelkit.config.schema import Settings
    from tunnelkit.session.doctor.check import CheckResult
    from tunnelkit.session.doctor.context import CheckContext

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red", "skip": "dim"}


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    profile: Annotated[str | None, profile_option()] = None,
    login: Annotated[str | None, login_option()] = None,
    link: Annotated[str | None, link_option()] = None,
) -> None:
    """Check everything from here to the node; each finding has a fix.

    A live session's connection is used; without one you are asked for a password or
    code once at most. Nothing is changed. Exits with 13 if a check fails.

    tk doctor
    tk doctor --login me@login.example.org
    tk doctor --json | jq '.checks[] | select(.status == "fail")'
    """
    from tunnelkit.cli.terminal.context import run

    results = run(examine(read_settings(profile, login, link), quiet=as_json))
    failed = [one.name for one in results if one.status.value == "fail"]
    if as_json:
        import json

        say(json.dumps(report(results), indent=2))
    else:
        say(summary(results))
    if failed:
        sys.exit(int(ExitCode.CHECK_FAILED))


async def examine(settings: Settings | TunnelkitError, *, quiet: bool = True) -> list[CheckResult]:
    """Run all checks for the current directory's project.

    Unless `quiet`, each result is printed as soon as those before it in the table are there.
    """
    from tunnelkit.session.backends.registry import checks_for
    from tunnelkit.session.doctor.runner import run_checks

    checks = checks_for(settings)
    shown = _InOrder([check.name for check in checks])
    async with scene_here(settings) as scene:
        return await run_checks(checks, scene, (lambda result: None) if quiet else shown.take)


def scene_here(settings: Settings | TunnelkitError) -> CheckContext:
    """Return what the checks look at, for the current directory's project."""
    from tunnelkit.cli.terminal.context import project_dir
    from tunnelkit.cli.terminal.tty import answer_prompt
    from tunnelkit.session.backends.registry import make_link
    from tunnelkit.session.doctor.context import CheckContext
    from tunnelkit.session.runtime.paths import session_paths

    project = project_dir()
    prompter = answer_prompt if sys.stdin.isatty() and sys.stderr.isatty() else None
    return CheckContext(
        settings,
        session_paths(project),
        project_dir=project,
        make_link=make_link,
        prompter=prompter,
    )


def read_settings(
    profile: str | None = None, login: str | None = None, link: str | None = None
) -> Settings | TunnelkitError:
    """Return the settings, or the error in them: that is a finding, too."""
    from tunnelkit.cli.terminal import context

    try:
        return context.settings(profile=profile, cluster__login=login, cluster__link=link)
    except NotTrusted:
        raise  # no check may run what the file names
    except TunnelkitError as error:
        return error


class _InOrder:
    """Prints results in a given order as early as that allows."""

    def __init__(self, names: list[str]) -> None:
        self._names = names
        self._waiting: dict[str, CheckResult] = {}

    def take(self, result: CheckResult) -> None:
        self._waiting[result.name] = result
        while self._names and self._names[0] in self._waiting:
            for line in lines(self._waiting.pop(self._names.pop(0))):
                say(line)


def lines(result: CheckResult) -> list[str]:
    """Return a result as text: what was found, and below it what to do."""
    status = result.status.value
    text = result.found if result.found.isprintable() else repr(result.found)
    printed = [f"{paint(f'{status:<4}', _COLOURS[status])}  {result.name:<13} {text}"]
    if result.fix:
        printed.append(f"      {'':<13} fix: {result.fix}")
    return printed


def summary(results: list[CheckResult]) -> str:
    """Return the last line: the number of failures, warnings and skipped checks."""
    count = {name: sum(one.status.value == name for one in results) for name in _COLOURS}
    if count["fail"]:
        return f"{count['fail']} failed, {count['warn']} with a warning"
    warned = f", {count['warn']} with a warning" if count["warn"] else ""
    return f"nothing failed{warned}" + (f", {count['skip']} not checked" if count["skip"] else "")


def report(results: list[CheckResult]) -> dict[str, object]:
    """Return all results as one JSON object."""
    from tunnelkit import __version__

    return {
        "version": __version__,
        "ok": all(one.status.value != "fail" for one in results),
        "checks": [one.to_json() for one in results],
    }
