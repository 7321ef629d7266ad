"""`tk why` on a waiting, a failed and a running job, beside the commands that are typed by hand.

The hand knows beforehand what to ask; reading the answers and finding the cause is not timed.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchlib.measure import Series, interleaved, timed
from benchlib.rankways import py_spy
from benchlib.rig import NODE, Rig, rig, wait_until

RTTS_MS = (0.0, 150.0)
BY_TK, BY_LOGIN, BY_HAND = (
    "tk why, with a session",
    "tk why, a login of its own",
    "by hand: ssh and Slurm's commands",
)
WAITING, FAILED, RUNNING = "waiting, s", "failed, s", "running, 1 s of samples, s"
REPLAYED_S = "5,000 nodes, 20,000 waiting jobs replayed, s of CPU (bar 0.3)"
REPLAYED_MB = "5,000 nodes, 20,000 waiting jobs replayed, MB more (bar 100)"
BY_RULES = "tk why's parsers and rules"
# The rules are imported by the first, small diagnosis.
_REPLAY = """
import re, time
from tests.unit.diagnosis.waiting.large_cluster import MARK, answer
from tunnelkit.model import Completed
from tunnelkit.scheduler.slurm.inspect.inspector import SlurmInspector
from tunnelkit.session.why.diagnose import judge
def diagnose(text):
    found = SlurmInspector().parse(Completed(0, text, b""), "900000", MARK)
    return judge(found, "900000").verdicts
def peak_kb():
    # Not ru_maxrss: that begins with the peak of the process that started this one.
    with open("/proc/self/status") as status:
        return int(re.search(r"VmHWM:\\s*(\\d+) kB", status.read())[1])
diagnose(answer(50, 200, 150).encode())
text = answer(5_000, 20_000, 15_000).encode()
before_kb, begun_s = peak_kb(), time.process_time()
assert [one.code for one in diagnose(text)] == ["fragmented"]
print(time.process_time() - begun_s, (peak_kb() - before_kb) / 1000)
"""
_PID = "bench-why.pid"
_RUNS = f'echo $$ >{_PID}; exec python3 -c "import time; time.sleep(1800)"'
_FAILS = "echo epoch 1; python3 -c \"{}['label']\""


def run(rounds: int, rtts: tuple[float, ...]) -> tuple[dict[str, dict[str, Series]], list[str]]:
    """Measure at each round-trip time; return the times, and what could not be measured."""
    found: dict[str, dict[str, Series]] = {}
    notes: list[str] = []
    for rtt in rtts:
        with rig(rtt or None) as one:
            for name, ways in _at(one, rounds, notes).items():
                found[f"{name}, RTT {rtt:g} ms"] = ways
    return found, list(dict.fromkeys(notes))


def replayed(rounds: int) -> dict[str, dict[str, Series]]:
    """Measure the reading and judging of a large cluster's recorded answer, a process each time."""
    seconds, memory = Series(), Series()
    root = Path(__file__).resolve().parents[2]
    for _ in range(rounds):
        done = subprocess.run(
            [sys.executable, "-c", _REPLAY], cwd=root, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=True, timeout=120,
        )  # fmt: skip
        cpu_s, more_mb = done.stdout.split()
        seconds.values.append(float(cpu_s))
        memory.values.append(float(more_mb))
    return {REPLAYED_S: {BY_RULES: seconds}, REPLAYED_MB: {BY_RULES: memory}}


def _at(one: Rig, rounds: int, notes: list[str]) -> dict[str, dict[str, Series]]:
    found: dict[str, dict[str, Series]] = {}
    with one.session():
        jobs = _jobs(one)
        for name, (job, hand) in jobs.items():
            ways = _ways(one, job, hand, notes)
            series = {way: Series() for way in ways}
            for way in interleaved(list(ways), rounds, f"why {name}"):
                series[way].values.append(timed(ways[way]))
            found[name] = series
        _login(one, "scancel -u $(id -un) -n bench-why; true")
    return found


def _jobs(one: Rig) -> dict[str, tuple[str, str]]:
    """Submit the jobs; return each with the commands of the hand."""
    submit = f"cd {one.info.home}; sbatch --parsable -J bench-why -t 30"
    failed = _login(one, f"{submit} -w node2 -o bench-why.log --wrap {_quoted(_FAILS)}").strip()
    wait_until(
        lambda: "FAILED" in _login(one, f"squeue -h -t all -j {failed} -o %T"), "the failed job", 60
    )
    runs = _login(one, f"{submit} -w node2 -c 1 --wrap {_quoted(_RUNS)}").strip()
    wait_until(
        lambda: "RUNNING" in _login(one, f"squeue -h -j {runs} -o %T"), "the running job", 60
    )
    waits = _login(one, f"{submit} -w {NODE} --exclusive --wrap true").strip()
    show = "scontrol show job -d {job}"
    dump = (
        "" if (spy := py_spy()) is None else f"; {shlex.quote(str(spy))} dump --pid $(cat {_PID})"
    )
    look = f"ps -u $(id -u) -o pid,stat,pcpu,comm{dump}"
    step = "srun --overlap --jobid {job} sh -c " + _quoted(look)
    queue = "squeue -t PD --sort=-p; sinfo -N -l; squeue --start -j {job}"
    return {
        WAITING: (waits, f"{show}; {queue}".replace("{job}", waits)),
        FAILED: (failed, f"{show}; tail -n 30 bench-why.log".replace("{job}", failed)),
        RUNNING: (runs, f"{show}; {step}".replace("{job}", runs)),
    }


def _ways(one: Rig, job: str, hand: str, notes: list[str]) -> dict[str, Callable[[], object]]:
    why = ("why", job, "--sample", "1", "--json")
    master = one.ssh("-o", "ControlMaster=no", "-o", "ControlPath=none")
    ways: dict[str, Callable[[], object]] = {
        BY_TK: partial(one.tk, *why),
        BY_LOGIN: partial(one.tk, *why, "--profile", "lab"),
        BY_HAND: partial(_run, one, [*master, "--", "login", hand]),
    }
    if py_spy() is None:
        notes.append("- py-spy: not installed (scripts/setup --bench); by hand ps stands for it")
    return ways


def _login(one: Rig, command: str) -> str:
    done = subprocess.run(
        one.ssh("--", "login", command), env=one.environ, capture_output=True, text=True,
        stdin=subprocess.DEVNULL, check=True, timeout=120,
    )  # fmt: skip
    return done.stdout


def _run(one: Rig, argv: list[str]) -> None:
    subprocess.run(
        argv, env=one.environ, stdin=subprocess.DEVNULL, capture_output=True, check=True,
        timeout=120,
    )  # fmt: skip


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
