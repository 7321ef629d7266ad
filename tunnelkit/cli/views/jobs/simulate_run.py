"""The run of `tk simulate` on this computer: what it is made of, and that nothing of it stays."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict

from tunnelkit.cli.terminal.output import note, say
from tunnelkit.diagnosis.ended.words import clock, span
from tunnelkit.diagnosis.sizes import size
from tunnelkit.diagnosis.verdict import Verdict
from tunnelkit.diagnosis.verdict_json import VerdictInfo, verdict_info
from tunnelkit.scheduler.script_options import ScriptRequest
from tunnelkit.simulate.command_line import SimulateLine
from tunnelkit.simulate.judgement import judge_run
from tunnelkit.simulate.plan import Plan, environment, make_plan, marked, this_computer
from tunnelkit.simulate.run import RunEnd, run_job
from tunnelkit.simulate.runners.base import Limits, LocalJob, Runner
from tunnelkit.simulate.runners.choice import choose
from tunnelkit.simulate.stand_ins import write_stand_ins

#: Signals that end tk: the run ends first, whatever comes meanwhile.
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class RunInfo(TypedDict):
    """A run, for --json. used_in: the runner's name. not_used: why others were not."""

    used_in: str
    not_used: list[str]
    mem_bytes: int | None
    cpus: int | None
    time_s: float | None
    notes: list[str]
    seconds: float
    peak_bytes: int | None
    exit_code: int
    verdict: VerdictInfo


@dataclass(frozen=True)
class Ran:
    """A run that has ended."""

    info: RunInfo
    verdict: Verdict


async def run_here(line: SimulateLine, *, quiet: bool) -> Ran:
    """Run the script or command to its end. quiet: its output goes to stderr, for JSON.

    Raises MissingProgram. SystemExit with 128 and the signal, once all of it has ended."""
    task = asyncio.current_task()
    assert task is not None, "this is a task"
    got: list[signal.Signals] = []
    loop = asyncio.get_running_loop()

    def end(number: signal.Signals) -> None:
        if not got:
            task.cancel()
        got.append(number)

    for number in _ENDING:
        loop.add_signal_handler(number, end, number)
    try:
        with tempfile.TemporaryDirectory(prefix="tk-simulate-") as work:
            return await _run(line, Path(work), quiet=quiet)
    except asyncio.CancelledError:
        if got:
            raise SystemExit(128 + got[0]) from None
        raise
    finally:
        for number in _ENDING:
            loop.remove_signal_handler(number)


async def _run(line: SimulateLine, work: Path, *, quiet: bool) -> Ran:
    request = _job(line)
    plan = make_plan(request, this_computer(), line.stop_s)
    job = _local_job(line, request, plan.limits, work)
    runner, why_not = await choose(job, line.values.get("--in"))
    (note if quiet else say)(_headline(runner, plan, why_not, line))
    for text in plan.notes:
        (note if quiet else say)(f"  note    {text}")
    out = sys.stderr.buffer if quiet else sys.stdout.buffer

    def show(data: bytes) -> None:
        out.write(data)
        out.flush()

    end = await run_job(runner, job, show)
    if end.tail and not end.tail.endswith("\n"):
        show(b"\n")
    verdict = judge_run(end, plan.limits, runner.source, time.time())
    return Ran(_info(end, runner, plan, why_not, verdict), verdict)


def _headline(runner: Runner, plan: Plan, why_not: tuple[str, ...], line: SimulateLine) -> str:
    limits = plan.limits
    words = [runner.name]
    words += [size(limits.mem_bytes)] if limits.mem_bytes else []
    words += [f"{limits.cpus} CPU{'' if limits.cpus == 1 else 's'}"] if limits.cpus else []
    words += [f"at most {clock(limits.time_s)}"] if limits.time_s else []
    words += [f"stopped after {span(limits.stop_s)}"] if limits.stop_s else []
    words += [f"{'PBS' if line.scheduler == 'pbs' else 'SLURM'}_* set"]
    text = f"here, {', '.join(words)}"
    if not runner.watches:
        return text
    why = f" ({'; '.join(why_not)})" if why_not else ""
    return f"{text}: tk itself watches the memory, an approximation{why}"


def _info(
    end: RunEnd, runner: Runner, plan: Plan, why_not: tuple[str, ...], verdict: Verdict
) -> RunInfo:
    return {
        "used_in": runner.name,
        "not_used": list(why_not),
        "mem_bytes": plan.limits.mem_bytes,
        "cpus": plan.limits.cpus,
        "time_s": plan.limits.time_s,
        "notes": list(plan.notes),
        "seconds": round(end.seconds, 2),
        "peak_bytes": end.memory.peak,
        "exit_code": end.exit_code,
        "verdict": verdict_info(verdict),
    }


def _job(line: SimulateLine) -> ScriptRequest:
    """Return the job; of a command that says nothing, what `[allocation]` would ask for."""
    default = None
    if line.words and not line.has("--no-check"):
        from tunnelkit.cli.terminal.context import settings
        from tunnelkit.session.simulate.check import as_for_up

        default = as_for_up(settings(profile=line.values.get("--profile")))
    request = line.request(default)
    return request if request.name else replace(request, name=line.name)


def _local_job(line: SimulateLine, request: ScriptRequest, limits: Limits, work: Path) -> LocalJob:
    name = f"tk-simulate-{secrets.token_hex(6)}"
    write_stand_ins(work / "bin", with_module=shutil.which("module") is None)
    here = Path.cwd()
    environ = environment(line.dialect(), request, this_computer(), os.environ, str(here))
    if line.scheduler == "pbs":
        nodes = work / "nodes"
        nodes.write_text(f"{this_computer().name}\n" * request.slots)
        environ["PBS_NODEFILE"] = str(nodes)
    return LocalJob(
        name,
        tuple(line.words) or (*_script(line, work), *line.args),
        marked(environ, name, str(work / "bin")),
        here,
        work,
        limits,
        line.values.get("--image", ""),
    )


def _script(line: SimulateLine, work: Path) -> tuple[str, ...]:
    """Write the job's copy of the script; as in a job, `$0` is a copy."""
    copy = work / "job"
    copy.mkdir(mode=0o700)
    path = copy / line.name
    path.write_bytes(line.text)
    path.chmod(0o700)
    return (str(path),) if line.text.startswith(b"#!") else ("sh", str(path))
