"""Clusters whose `python3` is missing or too old, on the login host, on the node or on both."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.tkrig import Project
from tunnelkit.errors import AllocationError
from tunnelkit.lab import LabInfo
from tunnelkit.lab.layout import Layout, write_private

pytestmark = pytest.mark.slow

Install = Callable[[str, str, str], None]


@pytest.fixture
def programs(slurm_lab: LabInfo) -> Iterator[Install]:
    """Puts a Python first on the PATH that does `instead` on hosts of this pattern."""
    made: list[Path] = []

    def install(name: str, hosts: str, instead: str) -> None:
        path = Layout(slurm_lab.dir).bin / name
        made.append(path)
        choice = f'case "$TK_LAB_HOST" in {hosts}) {instead} ;; esac'
        write_private(
            path,
            f'#!/bin/sh\n{choice}\nexec {Path(sys.executable).with_name("python3")} "$@"\n',
            mode=0o700,
        )

    yield install
    for path in made:
        path.unlink(missing_ok=True)


OLD = "echo 'Unknown option: -I' >&2; exit 2"


@pytest.mark.parametrize("hosts", ["login", "node*", "*"])
async def test_another_python_is_found_and_named(
    project: Project, programs: Install, hosts: str
) -> None:
    programs("python3", hosts, OLD)
    done = await project.tk("up", "node1")
    assert "ready on node1" in done.out
    said = [line for line in done.err.splitlines() if "/python" in line or "(3." in line]
    assert any("missing or too old: tk uses /" in line for line in said) == (hosts != "node*")
    assert any("agent: " in line and ", by /" in line for line in said) == (hosts != "login")
    assert (await project.tk("run", "echo", "works")).out.strip() == "works"
    checks = (await project.tk("doctor", "--json", code=None)).json["checks"]
    checks = {one["name"]: one for one in checks}
    assert checks["python"]["status"] == "ok"


async def test_a_python_that_a_person_chose_is_no_other(
    project: Project, programs: Install
) -> None:
    programs("site-python", "login", OLD)
    project.configure('[cluster]\npython = "site-python"\n')
    done = await project.tk("up", "node1", code=int(AllocationError.exit_code))
    assert "no Python 3.8 or newer as 'site-python'" in done.err


async def test_the_log_of_a_job_that_dies_at_once_is_shown(
    project: Project, programs: Install
) -> None:
    programs("site-python", "node*", "printf 'no \\033[31msite-python here\\n' >&2; exit 127")
    project.configure('[cluster]\npython = "site-python"\n')
    done = await project.tk("up", "node1", code=int(AllocationError.exit_code))
    assert "its log ends: no \\x1b[31msite-python here" in done.err
    assert "see its log" not in done.err
    await project.nothing_left()


async def test_a_job_that_could_write_no_log_says_so(project: Project, programs: Install) -> None:
    """As with a home that is read-only on the node."""
    gone = 'rm -f "$HOME/.cache/tunnelkit/jobs/$SLURM_JOB_ID.log"; exit 1'
    programs("site-python", "node*", gone)
    project.configure('[cluster]\npython = "site-python"\n')
    done = await project.tk("up", "node1", code=int(AllocationError.exit_code))
    assert "it left no log in" in done.err and "read-only or full on the node" in done.err


async def test_a_script_in_pythons_place_is_started_once(
    project: Project, programs: Install, tmp_path: Path
) -> None:
    """pyenv's takes 0.2 s each time: the Python behind it is what runs the agent."""
    starts = tmp_path / "starts"
    programs("python3", "*", f'echo "$TK_LAB_HOST $*" >>{starts}')
    done = await project.tk("up", "node1")
    assert "missing or too old" not in done.err and ", by /" not in done.err
    lines = starts.read_text().splitlines()
    hosts = {line.split()[0] for line in lines}
    assert {"login", "node1"} <= hosts
    assert not [line for line in lines if ".zip" in line]
