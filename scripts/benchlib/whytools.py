"""Other tools beside `tk why` and `tk top`: seff on a failed job, `nvitop -1` on a GPU.

seff reads the accounts alone, so it needs a lab with slurmdbd; nvitop asks NVML, which a library
of the tests' plays from a recording.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchlib.measure import Series, interleaved, timed
from benchlib.rig import NODE, TK, Rig, background, rig
from tests.support.accounting_rig import keep_accounts, why_no_accounting
from tests.support.slow_rig import pretend_nvml

BY_TK, BY_LOGIN, BY_HAND, SEFF = (
    "tk why, with a session",
    "tk why, a login of its own",
    "by hand: ssh, sacct and tail",
    "seff over ssh",
)
TOP, NVITOP = "tk top --once, with a session", "nvitop -1 over ssh"
_BIN = Path(sys.executable).parent
_FAILS = "echo epoch 1; python3 -c \"{}['label']\""
_WAITS = "python3 -c 'import time; time.sleep(1800)'"
_SACCT = "sacct -P -n -j {job} -o JobID,State,ExitCode,Elapsed,TotalCPU,MaxRSS,ReqMem"
_WATTS = "gpu 300000 11000 81920 1980 {pid}\nat 9 2 71000 1980 0\n"

Found = dict[str, dict[str, Series]]


def with_accounts(rounds: int, rtts: tuple[float, ...]) -> tuple[Found, list[str]]:
    """`tk why` and seff on a failed job, which Slurm has accounts of; and why that can't be."""
    seff = _BIN / "seff"
    if not seff.exists():
        return {}, ["- seff: not installed (scripts/setup --bench)"]
    if (reason := why_no_accounting()) is not None:
        return {}, [f"- seff: left out, {reason}"]
    found: Found = {}
    for rtt in rtts:
        with rig(rtt or None) as one:
            keep_accounts(one.info)
            one.up()
            try:
                job = _failed(one)
                ways: dict[str, Callable[[], object]] = {
                    BY_TK: partial(one.tk, "why", job, "--json"),
                    BY_LOGIN: partial(one.tk, "why", job, "--json", "--profile", "lab"),
                    BY_HAND: partial(
                        _login, one, f"{_SACCT.format(job=job)}; tail -n 30 bench-why.log"
                    ),
                    SEFF: partial(_login, one, f"{shlex.quote(str(seff))} {job}"),
                }
                _is_answer(one.tk("why", job), "KeyError")
                _is_answer(_login(one, f"{shlex.quote(str(seff))} {job}"), "State: FAILED")
                found[f"failed, with accounts, RTT {rtt:g} ms, s"] = _measured(ways, rounds, "seff")
            finally:
                one.down()
    return found, []


def of_a_gpu(rounds: int, rtts: tuple[float, ...]) -> tuple[Found, list[str]]:
    """`tk top --once` and `nvitop -1` on a node whose GPU is a recording; and why that can't be."""
    nvitop = _BIN / "nvitop"
    if not nvitop.exists():
        return {}, ["- nvitop: not installed (scripts/setup --bench)"]
    found: Found = {}
    for rtt in rtts:
        with rig(rtt or None) as one:
            library = pretend_nvml(one.project.parent)
            if library is None:
                return {}, ["- nvitop: left out, no C compiler for the library that plays a GPU"]
            play = one.project.parent / "recording"
            driver = f"LD_LIBRARY_PATH={library} TK_PRETEND_NVML={play}"
            python = one.project.parent / "python"
            python.write_text(f'#!/bin/sh\n{driver} exec python3 "$@"\n')
            python.chmod(0o755)
            with (one.project / "tunnelkit.toml").open("a") as config:
                config.write(f'\n[cluster]\npython = "{python}"\n')
            one.tk("trust", "--yes")
            with one.session(), _program(one) as pid:
                play.write_text(_WATTS.format(pid=pid))
                by_hand = f"TERM=xterm {driver} {shlex.quote(str(nvitop))} -1"
                ways: dict[str, Callable[[], object]] = {
                    TOP: partial(one.tk, "top", "--once"),
                    NVITOP: partial(_on, one, NODE, by_hand),
                }
                _is_answer(one.tk("top", "--once"), "9 % busy")
                _is_answer(_on(one, NODE, by_hand), "71W / 300W")
                found[f"a GPU, RTT {rtt:g} ms, s"] = _measured(ways, rounds, "top")
    return found, []


@contextmanager
def _program(one: Rig) -> Iterator[int]:
    """A program that runs in the job; its pid."""
    argv = [TK, "run", "--", "sh", "-c", f"echo $$; exec {_WAITS}"]
    with background(argv, cwd=one.project, env=one.environ, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())


def _failed(one: Rig) -> str:
    """The id of a job that has failed, and is in the accounts as failed."""
    submit = f"cd {one.info.home}; sbatch --wait --parsable -J bench-why -A lab -w node2"
    # sbatch's own exit code is the job's.
    job = _login(one, f"{submit} -o bench-why.log --wrap {shlex.quote(_FAILS)}; true").strip()
    _login(one, f"until sacct -X -n -j {job} -o State | grep -q FAILED; do sleep 0.2; done")
    return job


def _measured(ways: dict[str, Callable[[], object]], rounds: int, name: str) -> dict[str, Series]:
    series = {way: Series() for way in ways}
    for way in interleaved(list(ways), rounds, name):
        series[way].values.append(timed(ways[way]))
    return series


def _is_answer(text: str, wanted: str) -> None:
    """A way that failed fast would win. Raises RuntimeError unless the text has the wanted."""
    if wanted not in text:
        raise RuntimeError(f"no {wanted!r} in: {text}")


def _login(one: Rig, command: str) -> str:
    return _on(one, "login", command)


def _on(one: Rig, host: str, command: str) -> str:
    """stdout of a command on the host, by an ssh of its own. Raises RuntimeError if it fails."""
    argv = one.ssh("-o", "ControlMaster=no", "-o", "ControlPath=none", "--", host, command)
    done = subprocess.run(
        argv, env=one.environ, capture_output=True, text=True, stdin=subprocess.DEVNULL,
        check=False, timeout=120,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{command} on {host}: {done.stderr.strip() or done.stdout}")
    return done.stdout
