"""Real runs in each way: killed for memory, ended at a limit, and nothing is left of them."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.tkrig import eventually
from tunnelkit.errors import MissingProgram
from tunnelkit.simulate.judgement import judge_run
from tunnelkit.simulate.plan import marked
from tunnelkit.simulate.run import RunEnd, run_job
from tunnelkit.simulate.runners.base import Limits, LocalJob, Runner
from tunnelkit.simulate.runners.choice import choose, runner_of
from tunnelkit.simulate.runners.memory_group import use_of
from tunnelkit.simulate.runners.process_tree import MARK_VARIABLE

MB = 1 << 20
#: Asks for 10 MB after 10 MB, and says when it has some; it can't end by itself.
GROWS = f"""
import sys, time
held = []
while True:
    held.append(bytearray(10 * {MB}))
    print(len(held), flush=True)
    time.sleep(0.02)
"""
#: systemd-run as far as tk uses it, with a real memory cgroup (v1). TK_TEST_GROUPS: where.
SYSTEMD_RUN = r"""#!/bin/sh
name= limit=
while [ "$1" != -- ]; do
  case $1 in
    --unit=*) name=${1#--unit=} ;;
    -p) shift; case $1 in MemoryMax=*) limit=${1#MemoryMax=} ;; esac ;;
  esac
  shift
done
shift
group=$TK_TEST_GROUPS/$name.scope
mkdir "$group" || exit 1
[ -z "$limit" ] || echo "$limit" >"$group/memory.limit_in_bytes" || exit 1
echo $$ >"$group/cgroup.procs" || exit 1
exec "$@"
"""


def job(tmp_path: Path, argv: Sequence[str], limits: Limits, name: str = "") -> LocalJob:
    work = tmp_path / "work"
    work.mkdir(exist_ok=True)
    name = name or f"tk-simulate-{os.getpid()}-{tmp_path.name[-8:]}"
    environ = marked(dict(os.environ), name, str(work / "bin"))
    return LocalJob(name, argv, environ, tmp_path, work, limits)


def marked_processes(one: LocalJob) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        try:
            environ = Path(f"/proc/{name}/environ").read_bytes()
        except OSError:
            continue
        if f"{MARK_VARIABLE}={one.name}".encode() in environ.split(b"\0"):
            found.append(int(name))
    return found


async def run(runner: Runner, one: LocalJob) -> tuple[RunEnd, str]:
    out: list[bytes] = []
    async with asyncio.timeout(30):
        end = await run_job(runner, one, out.append)
    assert not marked_processes(one)
    return end, b"".join(out).decode()


async def usable(name: str, tmp_path: Path) -> Runner:
    """That runner; skips where it does not work."""
    runner = runner_of(name)
    if problem := await runner.problem(job(tmp_path, ["true"], Limits(64 * MB, 1))):
        pytest.skip(problem)
    return runner


async def test_bare_kills_the_largest_at_the_limit(tmp_path: Path) -> None:
    """The script lives on, as in a job: its exit code is its own."""
    script = f"{sys.executable} -c '{GROWS}'; echo after $?; exit 5"
    one = job(tmp_path, ["sh", "-c", script], Limits(90 * MB, 1))
    end, out = await run(runner_of("bare"), one)
    assert (end.code, end.killed_by_tk, end.memory.kills) == (5, True, 1)
    assert "after 137" in out
    assert (end.memory.used or 0) > 90 * MB and end.killed_s
    assert judge_run(end, one.limits, "x", 0.0).code == "oom-limit"


async def test_a_cgroup_of_its_own_is_held_by_the_kernel(tmp_path: Path) -> None:
    cgroup = await usable("cgroup", tmp_path)
    script = f"{sys.executable} -c '{GROWS}'; echo after $?; exit 5"
    one = job(tmp_path, ["sh", "-c", script], Limits(90 * MB, 1))
    end, out = await run(cgroup, one)
    assert (end.code, end.killed_by_tk, end.memory.kills) == (5, False, 1)
    assert "after 137" in out and (end.memory.peak or 0) <= 91 * MB
    assert judge_run(end, one.limits, "x", 0.0).code == "oom-limit"
    assert not list(Path("/sys/fs/cgroup").glob("*/**/" + one.name))


async def test_a_scope_of_systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await usable("cgroup", tmp_path)
    groups = Path("/sys/fs/cgroup/memory")
    if not (groups / "memory.limit_in_bytes").exists():
        pytest.skip("the stand-in for systemd-run uses cgroup v1")
    program = tmp_path / "programs" / "systemd-run"
    program.parent.mkdir()
    program.write_text(SYSTEMD_RUN)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("TK_TEST_GROUPS", str(groups))
    script = f"{sys.executable} -c '{GROWS}'; exit 5"
    one = job(tmp_path, ["sh", "-c", script], Limits(90 * MB, 1))
    runner = runner_of("systemd")
    try:
        assert await runner.problem(one) == ""
        end, _ = await run(runner, one)
    finally:
        # The real one removes its empty scopes.
        for place in groups.glob(f"{one.name}*"):
            place.rmdir()
    assert (end.code, end.memory.kills) == (5, 1)
    assert 80 * MB < (end.memory.peak or 0) <= 91 * MB


async def test_a_scope_without_the_memory_controller_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "systemd-run"
    program.write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    problem = await runner_of("systemd").problem(job(tmp_path, ["true"], Limits(64 * MB)))
    assert "not delegated" in problem


async def test_the_time_limit_and_what_ignores_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tunnelkit.simulate.run.KILL_WAIT_S", 0.3)
    script = (
        "trap 'echo got it' TERM; (trap '' TERM; exec tail -f /dev/null) & while :; do wait; done"
    )
    one = job(tmp_path, ["sh", "-c", script], Limits(None, None, 0.5))
    end, out = await run(runner_of("bare"), one)
    assert (end.signal, end.at_time_limit) == (9, True) and "got it" in out
    assert judge_run(end, one.limits, "x", 0.0).code == "timeout-working"


async def test_stopped_as_the_user_wished(tmp_path: Path) -> None:
    one = job(tmp_path, ["tail", "-f", "/dev/null"], Limits(None, None, 100.0, 0.3))
    end, _ = await run(runner_of("bare"), one)
    assert (end.stopped, end.at_time_limit, end.exit_code) == (True, False, 0)


@pytest.mark.parametrize("name", ["bare", "cgroup"])
async def test_what_a_script_leaves_behind_is_ended(tmp_path: Path, name: str) -> None:
    """A daemon in a session of its own, whose parent has ended."""
    runner = await usable(name, tmp_path)
    script = "setsid sh -c 'tail -f /dev/null & echo up' & wait; echo done"
    end, out = await run(runner, job(tmp_path, ["sh", "-c", script], Limits(100 * MB)))
    assert end.code == 0 and "done" in out


async def test_cancelled_in_the_middle(tmp_path: Path) -> None:
    out: list[bytes] = []
    script = "setsid tail -f /dev/null & echo up; wait"
    one = job(tmp_path, ["sh", "-c", script], Limits(100 * MB))
    task = asyncio.create_task(run_job(runner_of("bare"), one, out.append))
    await eventually(lambda: b"up" in b"".join(out), "it runs")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not marked_processes(one)


async def test_signals_and_codes_are_the_script_s(tmp_path: Path) -> None:
    for script, code, number in (("exit 7", 7, None), ("kill -SEGV $$", None, 11)):
        end, _ = await run(runner_of("bare"), job(tmp_path, ["sh", "-c", script], Limits()))
        assert (end.code, end.signal) == (code, number)


async def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(MissingProgram):
        await run_job(runner_of("bare"), job(tmp_path, ["/nowhere/x"], Limits()), lambda data: None)


async def test_a_flood_of_output_is_passed_on_and_its_end_is_kept(tmp_path: Path) -> None:
    one = job(tmp_path, ["sh", "-c", "yes | head -c 5000000; echo; echo last"], Limits())
    end, out = await run(runner_of("bare"), one)
    assert len(out) == 5000006 and end.tail.endswith("last\n") and len(end.tail) < 400_000


async def test_a_reader_that_has_gone_ends_the_run(tmp_path: Path) -> None:
    def gone(data: bytes) -> None:
        raise BrokenPipeError

    one = job(tmp_path, ["yes"], Limits())
    with pytest.raises(BrokenPipeError):
        await run_job(runner_of("bare"), one, gone)
    assert not marked_processes(one)


async def test_the_first_that_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = job(tmp_path, ["true"], Limits(64 * MB))
    runner, why = await choose(one, None, ("docker", "podman", "bare"))
    assert runner.name == "bare" and len(why) == 2
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingProgram) as caught:
        await choose(one, "podman")
    assert "podman is not installed" in caught.value.one_line()


def test_counts_of_both_cgroups() -> None:
    new = use_of({"memory.events": "low 0\noom 1\noom_kill 2\n", "memory.peak": "5\n"})
    assert (new.kills, new.at_limit, new.peak) == (2, 1, 5)
    old = use_of({"memory.oom_control": "oom_kill 3\n", "memory.max_usage_in_bytes": "7"})
    assert (old.kills, old.at_limit, old.peak) == (3, None, 7)
    assert use_of({}).kills is None
