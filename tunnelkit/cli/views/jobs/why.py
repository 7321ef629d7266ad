"""A diagnosis as the text of `tk why`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tunnelkit.cli.terminal.output import paint, say
from tunnelkit.cli.terminal.wait_line import asking
from tunnelkit.diagnosis.codes.registry import CODES
from tunnelkit.diagnosis.verdict import Certainty, Diagnosis, Stage, Verdict
from tunnelkit.diagnosis.verdict_json import DiagnosisInfo, VerdictInfo, from_json
from tunnelkit.errors import ExitCode, UsageError
from tunnelkit.model import job_words
from tunnelkit.text_format import shown

if TYPE_CHECKING:
    from tunnelkit.config.schema import Settings

#: As session/why/running.py.
_MOST_S = 60
_COLOURS = {Stage.WAITING: "yellow", Stage.RUNNING: "green", Stage.ENDED: "red"}


@dataclass(frozen=True)
class WhyOptions:
    """The words of `tk why`."""

    job: str | None
    check: bool
    as_json: bool
    profile: str | None
    login: str | None
    sample_s: int = 10
    log: str = ""


def show_why(options: WhyOptions) -> None:
    """Ask, and print the answer. Exits as `--check` says."""
    from tunnelkit.cli.terminal.context import run

    if not 0 <= options.sample_s <= _MOST_S:
        raise UsageError(
            f"--sample takes 0 to {_MOST_S} seconds, not {options.sample_s}",
            hint="10 s show most causes",
        )
    if options.log and options.job is None:
        raise UsageError("--log is the log of a job", hint="name it: tk why JOB --log FILE")
    info = run(_ask(options))
    _keep(info)
    if options.as_json:
        import json

        say(json.dumps(info, indent=2))
    else:
        for line in lines(from_json(info)):
            say(line)
    if options.check and any(map(_is_fatal, info["verdicts"])):
        sys.exit(int(ExitCode.DIAGNOSED))


def _is_fatal(verdict: VerdictInfo) -> bool:
    """True if the job failed, or can never start for sure: a script would cancel it."""
    code = CODES[verdict["code"]]
    sure = verdict["certainty"] == Certainty.PROVEN.value
    return code.fatal and (sure or code.stage is not Stage.WAITING)


def _keep(info: DiagnosisInfo) -> None:
    """Keep the answer for `tk bugreport`, where the session's state is."""
    from tunnelkit.cli.terminal.context import project_dir
    from tunnelkit.config.project import find_project
    from tunnelkit.session.report.diagnosis import keep_diagnosis
    from tunnelkit.session.runtime.paths import session_paths

    paths = session_paths(project_dir())
    if find_project(Path.cwd()) is not None or paths.diagnosis.parent.exists():
        keep_diagnosis(paths.diagnosis, info)


async def _ask(options: WhyOptions) -> DiagnosisInfo:
    """Ask by the session's connection, else by a connection of this command."""
    from tunnelkit.cli.terminal.by_session import live_session, prompter
    from tunnelkit.cli.terminal.context import settings
    from tunnelkit.diagnosis.verdict_json import to_json
    from tunnelkit.session.why.sources import asking_sources

    what = f"a running job is sampled for {options.sample_s} s"
    other = options.profile is not None or options.login is not None
    if (paths := None if other else live_session()) is not None:
        from tunnelkit.session.runtime import control_client
        from tunnelkit.session.runtime.control_calls import Why

        async with control_client.connect(paths) as session:
            with asking(what):
                return await session.call(
                    Why(job=options.job, sample=options.sample_s, log=options.log)
                )
    chosen = settings(profile=options.profile, cluster__login=options.login)
    if chosen.cluster.is_kubernetes:
        return await _ask_pods(chosen, options)
    async with asking_sources(
        chosen, prompter(), options.job, options.log, _import_rules
    ) as sources:
        from tunnelkit.session.why.diagnose import diagnose

        # Not before: the connection may ask for a password.
        with asking(what):
            found = await diagnose(sources, options.job, sample_s=options.sample_s, log=options.log)
            return to_json(found)


def _import_rules() -> None:
    """Import what the answer will need; a far host's login leaves the time for it."""
    import tunnelkit.diagnosis.ended.rules
    import tunnelkit.diagnosis.waiting.rules
    import tunnelkit.scheduler.slurm.inspect.inspector
    import tunnelkit.session.why.diagnose  # noqa: F401


async def _ask_pods(chosen: Settings, options: WhyOptions) -> DiagnosisInfo:
    from tunnelkit.cli.terminal.by_session import prompter
    from tunnelkit.diagnosis.verdict_json import to_json
    from tunnelkit.session.backends.registry import choose
    from tunnelkit.session.connection.own_link import own_link

    diagnose = choose(chosen).diagnose
    assert diagnose is not None
    async with own_link(chosen, prompter()) as own:
        return to_json(await diagnose(own.link, chosen, options.job))


def lines(diagnosis: Diagnosis) -> Iterator[str]:
    """Return the diagnosis as lines for people."""
    for at, verdict in enumerate(diagnosis.verdicts):
        if at:
            yield ""
        yield from _verdict_lines(verdict, diagnosis)
    for text in diagnosis.not_asked:
        yield f"  {'not asked':<9} {shown(text)}"
    for text in diagnosis.notes:
        yield shown(text)


def _verdict_lines(verdict: Verdict, diagnosis: Diagnosis) -> Iterator[str]:
    name = job_words(diagnosis.job_id) if diagnosis.job_id else "the session"
    return verdict_lines(verdict, name, _COLOURS[diagnosis.stage])


def verdict_lines(verdict: Verdict, name: str, colour: str) -> Iterator[str]:
    """Return a verdict as lines for people. name: what it is about."""
    yield paint(shown(f"{name} {verdict.predicate}"), colour)
    last = ""
    for one in verdict.because:
        label = one.label if one.label != last else ""
        last = one.label
        yield f"  {label:<9} {shown(one.text)}"
    for text in verdict.consequences:
        yield f"  {'then':<9} {shown(text)}"
    if verdict.excluded:
        yield f"  {'not it':<9} {shown(', '.join(verdict.excluded))}"
    for at, step in enumerate(verdict.next_steps):
        label = "next" if at == 0 else ""
        text = shown(step.text)
        yield f"  {label:<9} " + (
            f"{text}: {shown(step.command)}"
            if step.command and text
            else text or shown(step.command)
        )


def explain_code(name: str, *, as_json: bool) -> None:
    """Print the entry of a code. Raises UsageError for an unknown one."""
    code = CODES.get(name)
    if code is None:
        import difflib

        near = difflib.get_close_matches(name, CODES, 3)
        raise UsageError(
            f"{name!r} is no code of a verdict",
            hint=f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(CODES)}",
        )
    if as_json:
        import json

        say(json.dumps({**asdict(code), "stage": code.stage.value, "actor": code.actor.value}))
        return
    say(f"{code.name}: {code.meaning}")
    say(f"  {'who':<9} {code.actor.value}")
    say(f"  {'found by':<9} {code.found_by}")
    say(f"  {'next':<9} {code.remedy}")
