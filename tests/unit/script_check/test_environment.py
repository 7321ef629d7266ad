"""Modules and environments, by a bash of their own and stand-ins for the site's programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from tunnelkit.script_check import environment, imports, main, places
from tunnelkit.script_check.environment import Step

#: As Environment Modules 3 says it (exit code 0), and as Lmod does.
TCL = r"""
module() {
  case "$*" in
    'load gcc') export TK_TEST_LOADED=yes; echo 'Loading gcc' >&2 ;;
    load*) echo "ModuleCmd_Load.c(213):ERROR:105: Unable to locate a modulefile for '$2'" >&2 ;;
    '-t avail cuda') printf '/apps:\ncuda/12.4(default)\ncuda/12.6\n' >&2 ;;
  esac
}
"""
LMOD = r"""
module() {
  [ "$*" = 'load gcc' ] && return
  [ "$1" = load ] || return 0
  echo 'Lmod has detected the following error: The following module(s) are unknown: "x"' >&2
  return 1
}
"""
IMPORTS = Path(imports.__file__).read_text()


def rows(steps: list[Step]) -> list[tuple[object, ...]]:
    answer = environment.answers(steps, IMPORTS, login=False)
    found = cast("list[dict[str, object]]", answer["rows"])
    return [(one["kind"], one["step"], one["code"], one["text"]) for one in found]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "init").mkdir()
    monkeypatch.setenv("MODULESHOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("kind", [TCL, LMOD])
def test_modules_that_are_there_and_not(site: Path, kind: str) -> None:
    (site / "init" / "bash").write_text(kind)
    found = rows([("module", ["load", "gcc"]), ("module", ["load", "cuda/12.9"])])
    assert [one[:3] for one in found if one[0] == "module"] == [("module", 0, 0), ("module", 1, 1)]
    (there,) = [one[3] for one in found if one[0] == "avail"]
    assert kind is LMOD or "cuda/12.6" in str(there)


def test_a_module_s_variables_are_there_for_what_follows(site: Path) -> None:
    (site / "init" / "bash").write_text(TCL.replace("TK_TEST_LOADED=yes", f"PYTHONPATH={site}/lib"))
    (site / "lib").mkdir()
    (site / "lib" / "only_by_module.py").write_text("")
    (site / "main.py").write_text("import only_by_module, gone")
    python: Step = ("python", [sys.executable, "file", f"{site}/main.py"])
    answer = environment.answers([("module", ["load", "gcc"]), python], IMPORTS, login=False)
    (_, last) = cast("list[dict[str, dict[str, list[dict[str, str]]]]]", answer["rows"])
    assert [one["name"] for one in last["report"]["missing"]] == ["gone"]


def test_without_a_module_command(site: Path) -> None:
    if any(os.path.exists(f"/usr/share/{one}/init/bash") for one in ("modules", "lmod/lmod")):
        pytest.skip("this computer has environment modules")
    assert rows([("module", ["load", "gcc"])]) == [("module", 0, 127, "")]


def test_environments_by_name_and_by_place(site: Path) -> None:
    (site / "venv" / "bin").mkdir(parents=True)
    (site / "miniconda3" / "envs" / "torch" / "bin").mkdir(parents=True)
    (site / "other" / "named" / "bin").mkdir(parents=True)
    (site / ".conda").mkdir()
    (site / ".conda" / "environments.txt").write_text(f"{site}/other/named\n")
    found = rows([
        ("venv", ["$HOME/venv"]), ("conda", ["torch"]), ("conda", ["named"]), ("conda", ["none"]),
    ])  # fmt: skip
    assert [one[2:] for one in found] == [
        (0, f"{site}/venv"), (0, f"{site}/miniconda3/envs/torch"), (0, f"{site}/other/named"),
        (1, "none"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "word", ["'; touch ran; '", "$(touch ran)", "`touch ran`", "a\nb", "-x", "&"]
)
def test_no_word_is_more_than_a_word(
    site: Path, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(site)
    (site / "init" / "bash").write_text(TCL)
    steps: list[Step] = [
        ("module", ["load", word]), ("venv", [word]), ("conda", [word]), ("cd", [word]),
        ("export", ["PYTHONPATH", word]), ("python", [sys.executable, "file", word]),
    ]  # fmt: skip
    rows(steps)
    assert not (site / "ran").exists()


def test_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "work" / "logs").mkdir(parents=True)
    job = str(tmp_path / "work")
    here = places.working_directory("work", "")
    assert (here["path"], here["mirrored"], here["is"]) == (job, True, "ok")
    assert places.working_directory("gone", "")["path"] == str(tmp_path)
    assert places.working_directory("work", "gone")["is"] == "missing"
    assert places.output("logs/_", job)["is"] == "ok"
    assert places.output("nolog/_", job)["is"] == "missing"
    (tmp_path / "work" / "file").write_text("")
    assert places.output("file/_", job)["is"] == "no-directory"
    assert places.output("logs", job)["is"] == "is-directory"
    assert places.program("./file", job)["is"] == "not-executable"
    assert places.program("./gone", job)["is"] == "missing"
    assert places.interpreter(["/bin/sh"])["is"] == "ok"
    assert places.interpreter(["/usr/bin/env", "-S", "no-such-program"])["is"] == "missing"
    assert places.interpreter(["/nowhere/sh"])["is"] == "missing"
    (room, *_) = places.rooms([job, str(tmp_path)])
    assert 0 <= cast("float", room["used"]) <= 1


def test_variables_are_those_of_the_steps_before(site: Path) -> None:
    (site / "init" / "bash").write_text(TCL.replace("TK_TEST_LOADED=yes", f"PYTHONPATH={site}/lib"))
    for name in ("lib/of_module.py", "here/own/of_project.py"):
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text("")
    (site / "main.py").write_text("import of_module, of_project, gone")
    steps: list[Step] = [
        ("module", ["load", "gcc"]),
        ("cd", ["~/here"]),
        ("export", ["PYTHONPATH", "$PWD/own${PYTHONPATH:+:${PYTHONPATH}}"]),
        ("python", [sys.executable, "file", f"{site}/main.py"]),
    ]
    answer = environment.answers(steps, IMPORTS, login=False)
    last = cast("list[dict[str, dict[str, list[dict[str, str]]]]]", answer["rows"])[-1]
    assert [one["name"] for one in last["report"]["missing"]] == ["gone"]


@pytest.mark.parametrize(
    "word",
    [
        *("$(touch x)", "`touch x`", "${A:-$(touch x)}", "${A:-`touch x`}", "';touch x;'"),
        *(
            '"; touch x; "',
            '$A"; touch x; "',
            "${A[$(touch x)]}",
            "${A:+${B:-$(touch x)}}",
            "${A:+${A[$(touch x)]}}",
            "${A:=x}",
            "$((1+1))",
            "",
        ),
        *("${!A}", "${A@P}", "a b\tc\n*", "\\", "${A:-'$(touch x)'}", "#", "~nobody-here/$"),
    ],
)
def test_a_word_is_one_word_and_runs_nothing(site: Path, word: str) -> None:
    text = f"printf '%s\\0' {environment.for_bash(word)}"
    done = subprocess.run(
        ["bash", "-uc", f"A='$(touch x)'; {text}"], cwd=site, capture_output=True, check=True
    )
    assert done.stdout.decode().count("\0") == 1
    assert sorted(os.listdir(site)) == ["init"]
    if "$A" not in word:
        assert done.stdout.decode() == word + "\0"


def test_no_file_of_the_project_runs(tmp_path: Path) -> None:
    """Neither what is called as a module of Python's, nor a sitecustomize on its PYTHONPATH."""
    run = tmp_path / "run"
    evil = f"open({str(run)!r}, 'a').write(__name__)\n"
    (tmp_path / "src").mkdir()
    for name in ("tokenize.py", "ast.py", "src/sitecustomize.py", "src/helper.py"):
        (tmp_path / name).write_text(evil)
    (tmp_path / "train.py").write_text("import helper, tokenize, nothing_like_it\n")
    steps: list[Step] = [
        ("cd", [str(tmp_path)]),
        ("export", ["PYTHONPATH", "src"]),
        ("python", [sys.executable, "file", "train.py"]),
    ]
    answer = environment.answers(steps, IMPORTS, login=False)
    last = cast("list[dict[str, dict[str, list[dict[str, str]]]]]", answer["rows"])[-1]
    assert [one["name"] for one in last["report"]["missing"]] == ["nothing_like_it"]
    assert not run.exists()


def test_the_sitecustomize_of_a_site_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A login's PYTHONPATH may have one that brings the modules' packages (EasyBuild)."""
    site, project, packages = (tmp_path / name for name in ("site", "project", "packages"))
    for directory in (site, project, packages):
        directory.mkdir()
    (packages / "from_the_site.py").write_text("")
    code = f"import os, sys\nsys.path += [{str(packages)!r}] if 'EBPREFIX' in os.environ else []\n"
    (site / "sitecustomize.py").write_text(code)
    run = tmp_path / "run"
    (project / "sitecustomize.py").write_text(f"open({str(run)!r}, 'w')\n")
    (project / "train.py").write_text("import from_the_site\n")
    monkeypatch.setenv("PYTHONPATH", f"{project}:{site}")
    steps: list[Step] = [
        ("cd", [str(project)]),
        ("export", ["EBPREFIX", "1"]),
        ("python", [sys.executable, "file", "train.py"]),
    ]
    answer = environment.answers(steps, IMPORTS, login=False)
    last = cast("list[dict[str, dict[str, list[dict[str, str]]]]]", answer["rows"])[-1]
    assert last["report"]["missing"] == []
    assert not run.exists()


# -- a clone that is mirrored ---------------------------------------------------


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A mirrored directory; what runs of it leaves a file `ran` beside it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("PYTHONPATH", "LD_LIBRARY_PATH", "MODULEPATH"):
        monkeypatch.delenv(name, raising=False)
    place = tmp_path / "clone"
    (place / "bin").mkdir(parents=True)
    for name in ("python", "timeout", "readlink", "torch"):
        program(place / "bin" / name)
    (place / "train.py").write_text("import json, of_venv, of_pth, nothing_like_it\n")
    return place


def program(path: Path) -> None:
    """One that leaves the file when it runs."""
    path.write_text(f"#!/bin/sh\necho $0 >>{path.parents[1].parent}/ran\n")
    path.chmod(0o755)


def asked(clone: Path, *steps: Step) -> list[dict[str, object]]:
    """The rows of a script that is in the clone's directory; nothing of the clone has run."""
    first: Step = ("cd", [str(clone)])
    mirrored = environment.real_places(["~/clone"])
    answer = environment.answers([first, *steps], IMPORTS, login=False, mirrored=mirrored)
    ran = clone.parent / "ran"
    assert not ran.exists(), ran.read_text()
    return cast("list[dict[str, object]]", answer["rows"])


TRAIN = ["file", "train.py"]


@pytest.mark.parametrize(
    "steps",
    [
        [("python", ["./bin/python", *TRAIN])],
        [("python", ["$HOME/clone/bin/python", *TRAIN])],
        [("python", ["/proc/self/cwd/bin/python", *TRAIN])],
        [("venv", ["."]), ("python", ["python", *TRAIN])],
        [("venv", ["$HOME/link"]), ("python", ["python", *TRAIN])],
        [("conda", ["./"]), ("python", ["python", *TRAIN])],
        [("export", ["PATH", "$PWD/bin:$PATH"]), ("python", ["python", *TRAIN])],
        [("export", ["PATH", "bin:$PATH"]), ("python", ["python", *TRAIN])],
        [("cd", ["bin"]), ("export", ["PATH", ":$PATH"]), ("python", ["python", *TRAIN])],
    ],
)  # fmt: skip
def test_no_interpreter_of_a_clone_is_started(clone: Path, steps: list[Step]) -> None:
    (clone.parent / "link").symlink_to("clone")
    assert [one["kind"] for one in asked(clone, *steps)][-1] == "own"


def test_another_interpreter_is_found_behind_a_clone_s_programs(clone: Path) -> None:
    (clone / "bin" / "python").unlink()
    python: Step = ("python", [sys.executable, *TRAIN])
    row = asked(clone, ("export", ["PATH", "$PWD/bin:$PATH"]), python)[-1]
    assert row["kind"] == "python" and "report" in row


@pytest.fixture
def venv(clone: Path) -> Path:
    """A virtual environment in the clone, as `python -m venv` makes it, and with a .pth of code."""
    place = clone / ".venv"
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    packages = place / "lib" / version / "site-packages"
    packages.mkdir(parents=True)
    (place / "bin").mkdir()
    (place / "bin" / "python").symlink_to(os.path.realpath(sys.executable))
    program(place / "bin" / "timeout")
    home = os.path.dirname(os.path.realpath(sys.executable))
    (place / "pyvenv.cfg").write_text(f"home = {home}\n")
    (packages / "of_venv.py").write_text("")
    (place / "more").mkdir()
    (place / "more" / "of_pth.py").write_text("")
    (packages / "a.pth").write_text(f"# x\n\n{place}/more\n")
    evil = f"import os; open({str(clone.parent / 'ran')!r}, 'w').write('pth')\n"
    (packages / "distutils-precedence.pth").write_text(evil)
    (packages / "sitecustomize.py").write_text(evil)
    return place


@pytest.mark.parametrize("name", ["python", ".venv/bin/python", "$HOME/clone/.venv/bin/python"])
def test_the_packages_of_a_venv_are_found_and_its_code_is_not_run(
    clone: Path, venv: Path, name: str
) -> None:
    row = asked(clone, ("venv", [".venv"]), ("python", [name, *TRAIN]))[-1]
    report = cast("dict[str, Any]", row["report"])
    assert [(one["name"], one["needed"]) for one in report["missing"]] == [
        ("nothing_like_it", True)
    ]
    assert report["python"] == str(venv / "bin" / "python")


def test_code_in_a_pth_may_bring_what_is_missing(clone: Path, venv: Path) -> None:
    packages = next(venv.glob("lib/*/site-packages"))
    (packages / "editable.pth").write_text("import __editable__; __editable__.install()\n")
    row = asked(clone, ("venv", [".venv"]), ("python", ["python", *TRAIN]))[-1]
    report = cast("dict[str, list[dict[str, object]]]", row["report"])
    assert [one["needed"] for one in report["missing"]] == [False]


def test_a_link_to_another_program_is_not_started_as_python(clone: Path, venv: Path) -> None:
    (venv / "bin" / "python").unlink()
    (venv / "bin" / "python").symlink_to("/bin/sh")
    assert asked(clone, ("python", [".venv/bin/python", *TRAIN]))[-1]["kind"] == "own"


@pytest.mark.parametrize(
    "steps",
    [
        [("module", ["use", "mods"]), ("module", ["load", "gcc"])],
        [("module", ["use", "/none:$HOME/clone/mods"]), ("module", ["load", "gcc"])],
        [("module", ["load", "./mods/evil"])],
        [("module", ["load", "~/clone/mods/evil"])],
        [("module", ["swap", "gcc", "$PWD/mods/evil"])],
        [("export", ["MODULEPATH", "mods"]), ("module", ["load", "gcc"])],
    ],
)
def test_no_module_file_of_a_clone_is_loaded(site: Path, clone: Path, steps: list[Step]) -> None:
    (clone / "mods").mkdir()
    (clone / "mods" / "evil").write_text("")
    body = f'module() {{ echo "$*" "$MODULEPATH" >>{site}/ran; }}\n'
    (site / "init" / "bash").write_text(body)
    found = asked(clone, *steps, ("python", [sys.executable, *TRAIN]))
    assert [one["kind"] for one in found if one["kind"] != "cd"][-2:] == ["own", "own"]


def test_no_library_of_a_clone_is_loaded(clone: Path) -> None:
    word = ";$HOME/clone/lib:lib:/outside:"
    seen = clone.parent / "seen"
    watcher = clone.parent / "python3"
    watcher.write_text(f'#!/bin/sh\necho "$LD_LIBRARY_PATH" >{seen}\n')
    watcher.chmod(0o755)
    (clone / "lib").mkdir()
    asked(clone, ("export", ["LD_LIBRARY_PATH", word]), ("python", [str(watcher), *TRAIN]))
    assert seen.read_text() == "/outside\n"


def of_text(clone: Path, interpreter: str) -> dict[str, object]:
    """The row of a script in Python, as the whole check has it."""
    step = {"kind": "python", "words": [interpreter, "text", "the script"]}
    request = {
        "directory": "clone", "chdir": "", "outputs": [], "interpreter": [interpreter],
        "programs": [], "argv": [], "stdin": "", "steps": [step], "text": "import json, gone\n",
        "login": False, "mirrored": ["~/clone"],
    }  # fmt: skip
    found = main.steps(main.Request(json.dumps(request)), str(clone))
    assert not (clone.parent / "ran").exists()
    return cast("list[dict[str, object]]", found["rows"])[0]


def test_a_script_in_python_runs_no_module_of_its_directory(clone: Path) -> None:
    for name in ("ast", "json", "tokenize", "typing", "sitecustomize", "usercustomize"):
        (clone / f"{name}.py").write_text(f"open({str(clone.parent / 'ran')!r}, 'w')\n")
    report = cast("dict[str, list[dict[str, str]]]", of_text(clone, sys.executable)["report"])
    assert [one["name"] for one in report["missing"]] == ["gone"]


@pytest.mark.parametrize("name", ["bin/python", "./bin/python", "{}/bin/python", "{}/link"])
def test_a_script_in_python_names_no_interpreter_of_a_clone(clone: Path, name: str) -> None:
    (clone / "link").symlink_to(os.path.realpath(sys.executable))
    assert of_text(clone, name.format(clone))["kind"] == "own"
