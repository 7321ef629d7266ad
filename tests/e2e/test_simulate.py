"""`tk simulate`: the check on the lab's real Slurm, runs here, and that nothing of them stays."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.support.tkrig import Project, eventually, project_on
from tunnelkit.errors import ExitCode
from tunnelkit.lab import LabInfo

pytestmark = pytest.mark.asyncio(loop_scope="module")

SCRIPT = r"""#!/bin/bash
#SBATCH --mem=50 -c 1 -t 5
#SBATCH -o logs/%j.out
source venv/bin/activate
export PYTHONPATH=lib
./prepare.sh
srun -n 1 python train.py
#SBATCH --exclusive
"""
TRAIN = """\
import json
import not_there_at_all
from helper import used
try:
    import optional_thing
except ImportError:
    optional_thing = None

def later():
    import only_later
open("it-ran", "w")
"""
GROWS = """\
held = []
while True:
    held.append(bytearray(5 << 20))
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def project(lab: LabInfo) -> AsyncIterator[Project]:
    if lab.scheduler != "slurm":
        pytest.skip("Slurm is not installed")
    async with project_on(lab) as made:
        far_side(made.remote())
        yield made


def far_side(far: Path) -> None:
    """The script's place on the cluster, with a virtual environment whose Python is real."""
    (far / "venv" / "bin").mkdir(parents=True)
    real = Path(os.path.realpath(sys.executable))
    (far / "venv" / "bin" / "python").symlink_to(real)
    (far / "venv" / "pyvenv.cfg").write_text(f"home = {real.parent}\n")
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    packages = far / "venv" / "lib" / version / "site-packages"
    packages.mkdir(parents=True)
    runs = f"open({str(far / 'it-ran')!r}, 'w')\n"
    (packages / "_virtualenv.pth").write_text(f"import os; {runs}")
    (far / "tokenize.py").write_text(runs)
    (far / "lib").mkdir()
    (far / "lib" / "helper.py").write_text("import json\nused = 1\nopen('it-ran', 'w')\n")
    (far / "train.py").write_text(TRAIN)
    (far / "prepare.sh").write_text("#!/bin/sh\n")
    (far / "prepare.sh").chmod(0o644)


def findings(answer: Any, level: str) -> dict[str, str]:
    """Text and hint by check; of several the last."""
    rows = answer["check"]["findings"]
    return {one["check"]: f"{one['text']} {one['hint']}" for one in rows if one["level"] == level}


def files(home: Path) -> dict[Path, int]:
    return {path: path.lstat().st_mtime_ns for path in home.rglob("*")}


def temporary(project: Project) -> Path:
    """A directory of its own for the command's temporary files."""
    place = project.base / "t"
    place.mkdir(exist_ok=True)
    project.env["TMPDIR"] = str(place)
    return place


async def check(project: Project, *words: str, code: int = ExitCode.CHECK_FAILED) -> Any:
    return (await project.tk("simulate", "--only-check", "--json", *words, code=code)).json


async def test_one_command_finds_what_would_go_wrong(project: Project) -> None:
    """By a connection of its own: nothing is submitted, executed or written."""
    project.write("job.sh", SCRIPT)
    before = files(project.lab.home)
    answer = await check(project, "job.sh")
    assert files(project.lab.home) == before
    assert not await project.jobs()
    bad = findings(answer, "FAIL")
    assert bad.keys() == {"options", "output", "program", "imports"}, bad
    assert "#SBATCH in line 8" in bad["options"]
    assert "logs is not there" in bad["output"] and "mkdir -p" in bad["output"]
    assert "chmod +x ./prepare.sh" in bad["program"]
    assert "not_there_at_all (train.py:2)" in bad["imports"] and "venv" in bad["imports"]
    assert findings(answer, "warn")["imports"].endswith("only_later ")
    assert "accepted as they stand" in findings(answer, "ok")["refusal"]
    assert not list(project.lab.home.rglob("it-ran"))
    # For people, and by default nothing runs here then.
    done = await project.tk("simulate", "job.sh", code=ExitCode.CHECK_FAILED)
    assert done.out.startswith("on login, without an allocation (")
    assert "  FAIL    import not_there_at_all" in done.out and "not started" in done.out


async def test_what_slurm_refuses(project: Project) -> None:
    script = project.write("refused.sh", "#!/bin/sh\n#SBATCH -p nowhere\n:\n")
    bad = findings(await check(project, script), "FAIL")
    assert "invalid partition" in bad["refusal"].lower()
    # The command line's options count, too; a command is asked for as `tk up` would.
    assert findings(await check(project, "-p", "gpu", script, code=0), "ok")["refusal"]
    much = findings(await check(project, "--cpus", "999", "--", "true"), "FAIL")
    assert much["refusal"].startswith("sbatch refuses it: ")
    dos = project.dir / "dos.sh"
    dos.write_bytes(b"#!/bin/sh\r\necho\r\n")
    assert "dos2unix" in findings(await check(project, "dos.sh"), "FAIL")["line-ends"]


async def test_names_and_lines_of_a_hostile_repository(project: Project) -> None:
    """Nothing of a script's name or lines is executed on the login host, or obeyed here."""
    name = "a b\nü'\"$(touch it-ran)\x1b[2J.sh"
    evil = "'; touch it-ran; '"
    lines = [
        "#!/bin/sh", f'#SBATCH -o "{evil}/x"', f'module load "{evil}"',
        f'conda activate "{evil}"', f'python "{evil}.py"', f'export PYTHONPATH="{evil}"',
        'python "\x1b[2J$(touch it-ran).py"',
    ]  # fmt: skip
    (project.dir / name).write_text("\n".join(lines) + "\n")
    done = await project.tk("simulate", "--only-check", name, code=None)
    assert done.code == ExitCode.CHECK_FAILED, done
    assert not list(project.lab.home.rglob("it-ran"))
    assert not list(project.dir.rglob("it-ran"))
    assert "\x1b" not in done.out + done.err


async def test_a_run_ends_with_its_verdict_and_the_script_s_code(project: Project) -> None:
    place = temporary(project)
    project.write("grows.py", GROWS)
    lines = [
        "#!/bin/sh", "#SBATCH --mem=60 -c 1 -t 5", "echo $SLURM_JOB_ID $SLURM_MEM_PER_NODE $1",
        "python3 grows.py; echo grew $?", "exit 7",
    ]  # fmt: skip
    project.write("grows.sh", "\n".join(lines) + "\n")
    (project.remote() / "grows.py").write_text(GROWS)
    done = await project.tk("simulate", "--in", "bare", "grows.sh", "arg", code=7)
    assert "0 60 arg" in done.out and "grew 137" in done.out
    assert "it most likely would have been killed for memory: it used " in done.out
    assert "its limit is 60 MB" in done.out and "an approximation" in done.out
    done = await project.tk("simulate", "--json", "--no-check", "--in", "bare", "grows.sh", code=7)
    assert (done.json["check"], done.json["run"]["verdict"]["code"]) == (None, "oom-limit")
    assert "grew 137" in done.err
    well = await project.tk(
        "simulate", "--no-check", "--for", "0.5s", "--", "tail", "-f", "/dev/null"
    )
    assert "was stopped there, as --for says" in well.out
    assert not list(place.iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_ended_in_the_middle_nothing_stays(project: Project, number: int) -> None:
    place = temporary(project)
    script = project.write("waits.sh", "#!/bin/sh\nsetsid tail -f /dev/null & echo up; wait\n")
    terminal = await project.terminal("simulate", "--no-check", "--mem", "100", script)
    await terminal.line("^up")
    os.kill(terminal.process.pid, number)
    assert await terminal.process.wait() in (130, 128 + number)
    await eventually(lambda: not project.laptop_processes(), "all have ended")
    assert not list(place.iterdir())


async def test_a_session_s_connection_is_used(project: Project) -> None:
    """The same answers, without a login of its own."""
    project.write("job.sh", SCRIPT)
    alone = await check(project, "job.sh")
    await project.up("node1", "--cpus", "1")
    logins = len(project.sshd_connections())
    answer = await check(project, "job.sh")
    assert len(project.sshd_connections()) == logins
    assert findings(answer, "FAIL") == findings(alone, "FAIL")
    assert json.dumps(answer["check"]["cluster"]) == '"login"'
    await project.tk("down")
