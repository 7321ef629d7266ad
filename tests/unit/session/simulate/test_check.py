"""The whole check without a cluster: its one command runs here, with programs of a scheduler."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tunnelkit.cli.views.jobs.simulate import check_lines
from tunnelkit.config.load import load
from tunnelkit.errors import SchedulerError
from tunnelkit.model import Completed
from tunnelkit.scheduler.base import Command, Scheduler
from tunnelkit.scheduler.pbs.adapter import PBS
from tunnelkit.scheduler.script_options import Wanted
from tunnelkit.scheduler.slurm.adapter import Slurm
from tunnelkit.session.simulate.check import CheckHost, ToCheck, check
from tunnelkit.simulate.finding import CheckAnswer, from_info

QSTAT = """#!/bin/sh
case $1 in
  -Bf) printf 'Server: pbs\\n    default_queue = workq\\n' ;;
  -Qf) printf 'Queue: workq\\n    enabled = True\\n    started = True\\n' &&
    printf '    resources_max.walltime = 01:00:00\\n' ;;
esac
"""
SBATCH = """#!/bin/sh
echo "$*" >"$HOME/asked"
cat >>"$HOME/asked"
echo "sbatch: error: Batch job submission failed: Requested node configuration is not available" >&2
exit 1
"""


class Far:
    """A login host that is this computer, with a home of its own. asked: its commands."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.asked: list[Command] = []
        self.answer: Callable[[Completed], Completed] = lambda done: done
        (home / "bin").mkdir()

    def program(self, name: str, text: str) -> dict[str, str]:
        path = self.home / "bin" / name
        path.write_text(text)
        path.chmod(0o755)
        return {name: str(path.parent)}

    async def run(self, command: Command) -> Completed:
        self.asked.append(command)
        environ = {"HOME": str(self.home), "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
        done = await asyncio.to_thread(
            subprocess.run, command.argv, input=command.stdin, capture_output=True, env=environ
        )
        return self.answer(Completed(done.returncode, done.stdout, done.stderr))

    async def check(self, scheduler: Scheduler | None, what: ToCheck) -> CheckAnswer:
        settings = load(self.home, overrides={"cluster.login": "login"}, environ={})
        return await check(CheckHost(self.run, "login", scheduler, settings), what)


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Far:
    monkeypatch.setenv("TK_CONFIG_DIR", str(tmp_path / "config"))
    return Far(tmp_path)


def texts(answer: CheckAnswer, level: str = "FAIL") -> list[str]:
    return [one["text"] for one in answer["findings"] if one["level"] == level]


async def test_slurm_is_asked_with_the_head_and_the_options(far: Far) -> None:
    text = b"#!/bin/sh\n#SBATCH -c 64\ntouch ran\n"
    slurm = Slurm(bin_dirs=far.program("sbatch", SBATCH))
    what = ToCheck("a.sh", text, ["-p", "gpu"], far.home, wanted=Wanted("2G", None, 90))
    answer = await far.check(slurm, what)
    assert len(far.asked) == 1
    asked = (far.home / "asked").read_text()
    assert asked == ("--test-only -p gpu --mem=2G --time=00:01:30\n#!/bin/sh\n#SBATCH -c 64\n:\n")
    assert texts(answer) == ["sbatch refuses it: Requested node configuration is not available"]
    assert not (far.home / "ran").exists()


ALLOCATION = """[cluster]
login = "login"
[allocation]
mem = "8G"
cpus = 4
gpus = 1
time = "2:00:00"
partition = "gpu"
"""


async def test_a_command_is_asked_for_as_by_tk_up(far: Far) -> None:
    """Its own options count before [allocation]."""
    (far.home / "tunnelkit.toml").write_text(ALLOCATION)
    slurm = Slurm(bin_dirs=far.program("sbatch", SBATCH))
    what = ToCheck("true", b"", ["-p", "cpu"], far.home, ("true",), Wanted(None, 2))
    await far.check(slurm, what)
    assert (far.home / "asked").read_text().partition("\n")[0] == (
        "--test-only --mem=8G --cpus-per-task=4 --gpus=1 --time=02:00:00 --partition=gpu "
        "-p cpu --cpus-per-task=2"
    )
    # Slurm takes one way to ask for memory.
    await far.check(slurm, replace(what, options=["--mem-per-cpu=1G"]))
    asked = (far.home / "asked").read_text()
    assert "--mem=8G" not in asked and "--mem-per-cpu=1G" in asked
    # A script says itself what it asks for.
    await far.check(slurm, ToCheck("a.sh", b"#!/bin/sh\n", [], far.home))
    assert (far.home / "asked").read_text().partition("\n")[0] == "--test-only"
    pbs = PBS(bin_dirs=far.program("qstat", QSTAT))
    assert texts(await far.check(pbs, ToCheck("true", b"", [], far.home, ("true",)))) == [
        "there is no queue gpu: there are workq"
    ]
    limit = await far.check(pbs, ToCheck("true", b"", ["-q", "workq"], far.home, ("true",)))
    assert texts(limit) == ["walltime 2:00:00: queue workq takes at most 1:00:00"]


async def test_an_image_s_files_are_not_looked_for(far: Far) -> None:
    slurm = Slurm(bin_dirs=far.program("sbatch", "#!/bin/sh\n"))
    body = b"#!/gone/bash\n%sgone/run\npython3 gone.py\n"
    image = ToCheck("a.sh", body % b"#SBATCH --container-image=a#b:1\n", [], far.home)
    assert texts(await far.check(slurm, image)) == []
    assert len(texts(await far.check(slurm, ToCheck("a.sh", body % b"", [], far.home)))) == 2
    named = ToCheck("python3", b"", ["--container-name=a"], far.home, ("python3", "gone.py"))
    assert texts(await far.check(slurm, named)) == []


async def test_pbs_is_asked_for_its_queues_limits(far: Far) -> None:
    pbs = PBS(bin_dirs=far.program("qstat", QSTAT))
    text = b"#!/bin/sh\n#PBS -l walltime=2:00:00 -o gone/log\npython3 prog.py\n"
    (far.home / "prog.py").write_text("import not_there_at_all\n")
    answer = await far.check(pbs, ToCheck("a.sh", text, [], far.home))
    assert len(far.asked) == 1
    walltime, output, imports = texts(answer)
    assert walltime == "walltime 2:00:00: queue workq takes at most 1:00:00"
    assert output == f"output directory {far.home}/gone is not there"
    assert imports.startswith("import not_there_at_all (prog.py:1): not in ")
    short = await far.check(
        pbs, ToCheck("a.sh", b"#!/bin/sh\n#PBS -l walltime=600\n", [], far.home)
    )
    assert texts(short) == []


async def test_a_command_and_a_script_in_python(far: Far) -> None:
    (far.home / "prog.py").write_text("import json, gone_too\n")
    command = ToCheck("python3", b"", [], far.home, ("python3", "prog.py"))
    (one,) = texts(await far.check(None, command))
    assert one.startswith("import gone_too (prog.py:1): not in ")
    script = ToCheck("s.py", b"#!/usr/bin/env python3\nimport json\nimport gone\n", [], far.home)
    (two,) = texts(await far.check(None, script))
    assert two.startswith("import gone (the script:3): not in ")


async def test_a_login_host_that_floods_or_says_nothing(far: Far) -> None:
    what = ToCheck("a.sh", b"#!/bin/sh\n", [], far.home)
    far.answer = lambda done: Completed(0, b"\x1b[2J" * (4 << 20), b"evil\x1b[2J")
    with pytest.raises(SchedulerError) as caught:
        await far.check(None, what)
    assert "gave no answer" in caught.value.one_line()
    # Noise before the answer is none of it; a list is no answer.
    far.answer = lambda done: Completed(0, b"motd\n" + done.stdout + b"\nbye\n", b"")
    assert texts(await far.check(None, what)) == []


def test_what_the_far_side_says_is_escaped() -> None:
    evil = "\x1b[2J\nit is all well\r\x9b8m"
    info = {"check": "modules", "level": "FAIL", "text": evil, "hint": evil, "line": 0}
    answer: CheckAnswer = {"cluster": evil, "directory": "", "seconds": 1.0, "findings": []}
    lines = list(check_lines(answer, [from_info(info)]))  # type: ignore[arg-type]
    assert len(lines) == 2
    assert not any(set(line) & set("\x1b\n\r\x9b") for line in lines)
