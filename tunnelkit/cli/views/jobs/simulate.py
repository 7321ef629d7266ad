"""`tk simulate`: the check's findings, the run, and its verdict."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tunnelkit.cli.terminal.output import paint, say
from tunnelkit.cli.views.jobs.simulate_run import Ran, run_here
from tunnelkit.errors import ExitCode
from tunnelkit.simulate.command_line import SimulateLine
from tunnelkit.simulate.finding import CheckAnswer, Finding, Level, failed, from_info
from tunnelkit.text_format import shown

if TYPE_CHECKING:
    from tunnelkit.link.base import Prompter
    from tunnelkit.session.simulate.call import CheckScript

_COLOURS = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "red", Level.UNKNOWN: "yellow"}


def simulate_line(line: SimulateLine) -> None:
    """Check, run, and tell; exits with the script's code, or 13 for a check that failed."""
    from tunnelkit.cli.terminal.context import run

    as_json = line.has("--json")
    answer = None if line.has("--no-check") else run(_check(line))
    findings = [] if answer is None else [from_info(one) for one in answer["findings"]]
    if answer is not None and not as_json:
        for text in check_lines(answer, findings):
            say(text)
    bad = failed(findings)
    ran = None
    if not line.only_check and (not bad or line.has("--force")):
        ran = run(run_here(line, quiet=as_json))
    elif bad and not as_json and not line.only_check:
        say("here: not started; repair the above first (--force: start it anyway)")
    if as_json:
        import json

        say(json.dumps({"check": answer, "run": None if ran is None else ran.info}, indent=2))
    elif ran is not None:
        _tell(ran)
    if ran is not None:
        sys.exit(ran.info["exit_code"])
    if bad:
        sys.exit(int(ExitCode.CHECK_FAILED))


# -- the check ------------------------------------------------------------------


async def _check(line: SimulateLine) -> CheckAnswer:
    from tunnelkit.cli.terminal.by_session import by_session
    from tunnelkit.cli.terminal.wait_line import asking

    profile, login = line.values.get("--profile"), line.values.get("--login")

    async def own(prompter: Prompter | None) -> CheckAnswer:
        from tunnelkit.cli.terminal.context import settings
        from tunnelkit.model import Completed
        from tunnelkit.scheduler.base import Command
        from tunnelkit.session.connection.own_link import own_link
        from tunnelkit.session.simulate.check import LIMIT_S, CheckHost, ToCheck, check

        chosen = settings(profile=profile, cluster__login=login)
        async with own_link(chosen, prompter) as far:

            async def on_login(command: Command) -> Completed:
                return await far.link.run(command.argv, stdin=command.stdin, timeout_s=LIMIT_S)

            host = CheckHost(on_login, far.link.name, far.scheduler, chosen)
            with asking("the cluster is asked"):
                return await check(
                    host,
                    ToCheck(
                        line.name, line.text, line.options, Path.cwd(), line.words, line.wanted()
                    ),
                )

    other = profile is not None or login is not None
    return await by_session(lambda: _request(line), own, other_cluster=other)


def _request(line: SimulateLine) -> CheckScript:
    from tunnelkit.session.simulate.call import CheckScript

    def latin(word: str) -> str:
        return os.fsencode(word).decode("latin-1")

    wanted = line.wanted()
    return CheckScript(
        name=line.name,
        text=line.text.decode("latin-1"),
        options=[latin(word) for word in line.options],
        words=[latin(word) for word in line.words],
        here=os.getcwd(),
        mem=wanted.mem,
        cpus=wanted.cpus,
        time_s=wanted.time_s,
    )


def check_lines(answer: CheckAnswer, findings: list[Finding]) -> Iterator[str]:
    """Return the findings as lines for people: what is well comes last, in one."""
    yield f"on {shown(answer['cluster'])}, without an allocation ({answer['seconds']:.1f} s)"
    for level in (Level.FAIL, Level.WARN, Level.UNKNOWN):
        for one in findings:
            if one.level is level:
                hint = f"   {shown(one.hint)}" if one.hint else ""
                yield f"  {paint(f'{level.value:<7}', _COLOURS[level])} {shown(one.text)}{hint}"
    well = list(dict.fromkeys(shown(one.text) for one in findings if one.level is Level.OK))
    if well:
        yield f"  {paint(f'{Level.OK.value:<7}', _COLOURS[Level.OK])} {', '.join(well)}"


# -- the end --------------------------------------------------------------------


def _tell(ran: Ran) -> None:
    from tunnelkit.cli.views.jobs.why import verdict_lines

    colour = "green" if ran.verdict.code == "ok" else "red"
    for text in verdict_lines(ran.verdict, "it", colour):
        say(text)
