"""The hook's door: it gives way to the person's own, and never hurts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.hook_rig import SITE, pack
from tests.unit.test_agent_zip import interpreters

TOO_OLD = [
    str(path)
    for minor in (6, 7)
    for path in Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python")
]
LOOK = (
    "import sys, os; "
    "print([m for m in sys.modules if m.startswith('_tunnelkit_') or m in ('json', 'torch')]); "
    "print(getattr(sys.modules.get('sitecustomize'), 'WHOSE', None)); "
    "print(os.environ.get('PYTHONPATH'))"
)


@pytest.fixture(params=["directory", "zip"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return SITE if request.param == "directory" else pack(tmp_path / "agent.zip")


def python(
    code: str, *path: Path, interpreter: str = sys.executable, **environ: str
) -> tuple[list[str], str]:
    """(stdout's lines, stderr) of `python -c CODE` with this PYTHONPATH; it must end well."""
    done = subprocess.run(
        [interpreter, "-c", code],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(map(str, path)), **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr


def own(directory: Path, text: str = "WHOSE = 'mine'\n") -> Path:
    directory.mkdir()
    (directory / "sitecustomize.py").write_text(text)
    return directory


def test_without_a_job_it_does_nothing(site: Path) -> None:
    out, errors = python(LOOK, site)
    assert out == ["[]", "None", str(site)]
    assert errors == ""


@pytest.mark.parametrize("environ", [{}, {"TK_RANKS": '{"dialin": "/none"}'}])
def test_the_persons_own_comes_next(site: Path, tmp_path: Path, environ: dict[str, str]) -> None:
    mine = own(tmp_path / "mine")
    out, errors = python(LOOK, site, mine, **environ)
    assert out[1:] == ["mine", f"{site}:{mine}"]
    assert errors == ""


def test_the_persons_own_can_be_imported_again(site: Path, tmp_path: Path) -> None:
    mine = own(tmp_path / "mine")
    code = "import sitecustomize; print(sitecustomize.WHOSE, sitecustomize.__file__)"
    assert python(code, site, mine)[0] == [f"mine {mine / 'sitecustomize.py'}"]


def test_an_error_of_the_persons_own_is_told_as_ever(site: Path, tmp_path: Path) -> None:
    mine = own(tmp_path / "mine", "import no_such_module\n")
    alone = python("print(1)", mine)
    assert python("print(1)", site, mine) == alone
    assert "no_such_module" in alone[1]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"only": 3}', '{"dialin": "/x", "only": "a"}'])
def test_a_malformed_contract_hurts_nobody(site: Path, text: str) -> None:
    out, errors = python("print('ran')", site, TK_RANKS=text, RANK="0", WORLD_SIZE="1")
    assert out == ["ran"]
    assert errors.startswith("tk: this process is not debugged: ")
    assert errors.count("\n") == 1


def test_a_closed_stderr_hurts_nobody(site: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$0" -c "print(1)" 2>&-', sys.executable],
        env={"PYTHONPATH": str(site), "TK_RANKS": "{"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "1\n")


def test_a_rank_that_can_not_be_debugged_says_so_and_runs(site: Path) -> None:
    out, errors = python(
        LOOK, site, TK_RANKS='{"dialin": "/none/loop.1"}', RANK="3", WORLD_SIZE="4"
    )
    assert out[1:] == ["None", "None"]
    assert errors.startswith("tk: rank 3 runs free, not debugged: ")
    assert errors.count("\n") == 1


@pytest.mark.parametrize("interpreter", interpreters())
def test_on_every_python_of_the_nodes(site: Path, tmp_path: Path, interpreter: str) -> None:
    mine = own(tmp_path / "mine")
    code = "import sys, os; print(sys.argv, os.environ['PYTHONPATH'], sys.path[1])"
    torchless = "try: import torch.distributed\nexcept ImportError: print('no torch')\n"
    contract = '{"dialin": "/none/loop.1", "only": [1]}'
    for rank in ("0", "1"):
        out, errors = python(
            torchless + code,
            site,
            mine,
            interpreter=interpreter,
            TK_RANKS=contract,
            RANK=rank,
            WORLD_SIZE="2",
        )
        assert out[-1] == f"['-c'] {mine} {mine}"
        assert errors.count("\n") == int(rank)
        assert "rank 1 runs free" in errors or rank == "0"


@pytest.mark.parametrize("interpreter", TOO_OLD)
def test_an_older_python_is_left_alone(site: Path, interpreter: str) -> None:
    out, errors = python("print(1)", site, interpreter=interpreter, TK_RANKS="{}", RANK="0")
    assert (out, errors) == (["1"], "")
