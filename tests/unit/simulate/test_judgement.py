"""The verdict on a run, the plan of one, and the command line that leads to both."""

from __future__ import annotations

from pathlib import Path

import pytest

from tunnelkit.diagnosis.codes.registry import CODES
from tunnelkit.diagnosis.verdict import Certainty
from tunnelkit.errors import UsageError
from tunnelkit.scheduler.script_options import ScriptRequest, Wanted
from tunnelkit.scheduler.slurm.script_options import SlurmScriptOptions
from tunnelkit.simulate.command_line import SimulateLine, read_line
from tunnelkit.simulate.judgement import judge_run
from tunnelkit.simulate.plan import Computer, environment, make_plan
from tunnelkit.simulate.run import RunEnd
from tunnelkit.simulate.runners.base import Limits, MemoryUse
from tunnelkit.simulate.stand_ins import write_stand_ins

GB = 1 << 30
LIMITS = Limits(8 * GB, 2, 3600.0)
TRACEBACK = (
    'Traceback (most recent call last):\n  File "data.py", line 88, in collate\n'
    "    y = row['label']\nKeyError: 'label'\n"
)


def end(code: int | None = 0, signal: int | None = None, **more: object) -> RunEnd:
    memory = more.pop("memory", MemoryUse(peak=GB))
    return RunEnd(code, signal, 40.0, memory, **more)  # type: ignore[arg-type]


def judged(one: RunEnd, limits: Limits = LIMITS) -> tuple[str, str, Certainty]:
    found = judge_run(one, limits, "test", 1e9)
    assert (found.code in CODES and found.because) or found.code == "ok"
    return found.code, found.predicate, found.certainty


def test_memory() -> None:
    by_kernel = end(137, memory=MemoryUse(None, 8 * GB, 1, 1), killed_s=40.0)
    assert judged(by_kernel) == (
        "oom-limit",
        "would have been killed for memory: it used 8 GB after 40 s, its limit is 8 GB",
        Certainty.PROVEN,
    )
    by_tk = end(137, memory=MemoryUse(9 * GB, 9 * GB, 1), killed_s=40.0, killed_by_tk=True)
    code, words, certainty = judged(by_tk)
    assert (code, certainty) == ("oom-limit", Certainty.LIKELY)
    assert words.startswith("most likely would have been killed for memory: it used 9 GB")
    # Not by the run's own limit: a limit above it, or this computer.
    above = end(137, memory=MemoryUse(None, GB, 1, 0), killed_s=4.0)
    assert judged(above)[0] == "oom-node"
    assert judged(by_kernel, Limits())[0] == "oom-node"


def test_the_script_s_end_after_a_kill_is_a_consequence() -> None:
    found = judge_run(end(0, memory=MemoryUse(None, GB, 2, 1)), LIMITS, "test", 1e9)
    assert found.consequences == ("the script ended with exit code 0",)
    assert found.because[0].text == "2 processes killed for memory"
    assert found.next_steps[0].command == "--mem=10G"


def test_time() -> None:
    code, words, _ = judged(end(None, 15, at_time_limit=True, cpu_s=30.0))
    assert (code, words) == (
        "timeout-working",
        "would have been ended at its time limit of 1:00:00",
    )
    still = RunEnd(None, 15, 3600.0, MemoryUse(), at_time_limit=True, cpu_s=1.0, silent_s=3000.0)
    assert judged(still)[0] == "timeout-hang"
    stopped = end(None, 15, stopped=True)
    assert judged(stopped)[:2] == (
        "ok", "ran for 40 s without a fault, and was stopped there, as --for says",
    )  # fmt: skip
    assert (stopped.exit_code, end(None, 9).exit_code, end(3).exit_code) == (0, 137, 3)


@pytest.mark.parametrize(
    "one, code",
    [
        (end(0), "ok"),
        (end(1, tail=TRACEBACK), "exception"),
        (end(1, tail="ModuleNotFoundError: No module named 'wandb'\n"), "missing-module"),
        (end(139, tail="line 3: 7 Segmentation fault\n"), "segfault"),
        (end(None, 11), "segfault"),
        (end(127, tail="job.sh: line 2: nosuch: command not found\n"), "not-found"),
        (end(3), "exit-unknown"),
    ],
)
def test_other_ends_are_judged_as_tk_why_does(one: RunEnd, code: str) -> None:
    assert judged(one)[0] == code


def test_what_this_computer_lacks_is_said() -> None:
    small = Computer("here", 2, 4 * GB, gpus=False)
    job = ScriptRequest(cpus=8, mem_bytes=64 * GB, gpus=1, nodes=2, tasks=4, array_first=3)
    plan = make_plan(job, small, 60.0)
    assert (plan.limits.cpus, plan.limits.mem_bytes, plan.limits.stop_s) == (2, 64 * GB, 60.0)
    text = "\n".join(plan.notes)
    for words in ("has 4 GB", "2 of 8 CPUs", "no GPU", "one of 2 nodes", "4 tasks", "element 3"):
        assert words in text
    large = Computer("here", 64, 512 * GB, gpus=True)
    assert make_plan(ScriptRequest(cpus=2, mem_bytes=GB), large, None).notes == ()


def test_the_environment_is_the_job_s() -> None:
    slurm = SlurmScriptOptions()
    here = {"HOME": "/h", "PATH": "/bin", "SLURM_JOB_ID": "77", "PBS_JOBID": "5", "OWN": "x"}
    made = environment(slurm, ScriptRequest(gpus=2), Computer("h", 2, None, False), here, "/w")
    assert (made["SLURM_JOB_ID"], made["OWN"], made["TK_SIMULATE"]) == ("0", "x", "1")
    assert "PBS_JOBID" not in made and made["CUDA_VISIBLE_DEVICES"] == ""
    clean = environment(slurm, ScriptRequest(clean=True), Computer("h", 2, None, True), here, "/w")
    assert "OWN" not in clean and clean["HOME"] == "/h"


# -- the command line -----------------------------------------------------------


def script(directory: Path, text: str = "#!/bin/sh\n", name: str = "a.sh") -> str:
    path = directory / name
    path.write_text(text)
    return str(path)


def line(*words: str) -> SimulateLine:
    return read_line(words)


def test_options_end_at_the_script(tmp_path: Path) -> None:
    path = script(tmp_path)
    its = ["--time", "5", "--in", "data.csv", "--json", "--", "--profile"]
    found = line("-p", "gpu", "--mem", "2G", "--for=60s", "--json", path, *its)
    assert (found.path, found.options, found.args) == (path, ["-p", "gpu"], its)
    assert found.values == {"--mem": "2G", "--for": "60s", "--json": ""}
    assert found.stop_s == 60 and found.wanted().mem == "2G"
    assert found.request().mem_bytes == 2 * GB


def test_a_command_follows_two_dashes() -> None:
    found = line("--cpus", "2", "--time", "90s", "--", "python", "a b.py", "--json")
    assert (found.words, found.name) == (["python", "a b.py", "--json"], "python")
    request = found.request()
    assert (request.cpus, request.time_s) == (2, 90)
    # [allocation] counts where the line says nothing.
    default = Wanted("8G", 4, 60, gpus=1)
    request = found.request(default)
    assert (request.mem_bytes, request.cpus, request.time_s, request.gpus) == (8 * GB, 2, 90, 1)
    other = line("-c", "3", "--mem-per-cpu=1G", "--", "python").request(default)
    assert (other.mem_bytes, other.cpus, other.time_s) == (3 * GB, 3, 60)


def test_a_script_of_pbs_is_read_as_one(tmp_path: Path) -> None:
    path = script(tmp_path, "#!/bin/sh\n#PBS -l select=1:ncpus=3\n")
    found = line("-l", "walltime=1:00", path, "x")
    assert (found.scheduler, found.options, found.args) == ("pbs", ["-l", "walltime=1:00"], ["x"])
    assert found.request().cpus == 3
    assert line(path).scheduler == "pbs"


@pytest.mark.parametrize("name", ["a b.sh", "-x.sh", "ü'\"$.sh", "a\nb.sh", "$(touch ran).sh"])
def test_a_script_may_have_any_name(tmp_path: Path, name: str) -> None:
    path = script(tmp_path, name=name)
    assert (line(path).path, line(path).name) == (path, name)


@pytest.mark.parametrize(
    "words, message",
    [
        ("", "no script"), ("--", "no command"), ("gone.sh", "can't be read"),
        ("--in vm -- x", "none of docker"), ("--for soon -- x", "is no time"),
        ("--only-check --no-check -- x", "exclude"), ("--mem lots -- x", "is no size"),
        ("--cpus 0 -- x", "no number"), ("--json=1 -- x", "takes no value"), ("--in", "no value"),
        ("--image= -- x", "no image"), ("--image -rm -- x", "no image"),
    ],
)  # fmt: skip
def test_mistakes(words: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_line(words.split())
    assert message in caught.value.one_line() and caught.value.hint


def test_srun_s_stand_in_finds_its_command(tmp_path: Path) -> None:
    import subprocess

    write_stand_ins(tmp_path / "bin", with_module=True)
    srun = str(tmp_path / "bin" / "srun")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([srun, *words], capture_output=True, text=True, env={"SLURM_NTASKS": "4", "PATH": "/bin:/usr/bin"})  # fmt: skip  # noqa: E501

    for options in (
        "",
        "-n 2",
        "-n2 --label",
        "--ntasks 2 --mpi pmix",
        "--mpi=pmix -l -u",
        "-c 2 --",
    ):
        done = run(*options.split(), "echo", "a b", "-n")
        assert done.stdout == "a b -n\n", (options, done)
    assert "one of 4 tasks" in done.stderr
    assert run("-n", "2").returncode == 1
