"""Slow imports of a program are told, those of its own modules by what they import."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.debuggee.code_objects import code_of
from tunnelkit.debuggee import import_timer, library_code

ROOT = Path(__file__).parents[3]
SLOW = "import time\ntime.sleep(0.3)\n"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A project, and a library next to it."""
    files = {
        "lib/heavy.py": SLOW,
        "lib/light.py": "",
        "lib/tower/__init__.py": "import heavy\nfrom tower import top\n",
        "lib/tower/top.py": SLOW,
        "lib/broken.py": SLOW + "1/0\n",
        "lib/alien.py": "import tower\n",
        "project/model.py": SLOW + "import heavy\n",
        "project/.venv/site-packages/inside.py": SLOW,
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def told(place: Path, program: str) -> list[str]:
    """The modules that were told, in order; their times are checked here."""
    watch = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from tunnelkit.debuggee.import_timer import watch_imports\n"
        f"sys.path[:2] = [{str(place / 'project')!r}, {str(place / 'lib')!r}]\n"
        f"sys.path.append({str(place / 'project/.venv/site-packages')!r})\n"
        "told = []\nwatch_imports(told.append)\n"
        f"{program}\nprint(told)"
    )
    done = subprocess.run(
        [sys.executable, "-c", watch],
        cwd=place / "project",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    found = ast.literal_eval(done.stdout.splitlines()[-1])
    assert all(0.25 <= one["duration_s"] < 60 for one in found)
    return [one["module"] for one in found]


@pytest.mark.parametrize(
    ("program", "modules"),
    [
        ("import heavy", ["heavy"]),
        ("import heavy; import heavy", ["heavy"]),
        ("import light, json", []),
        # What a module brings along is in its own time.
        ("import tower", ["tower"]),
        ("import alien", ["alien"]),
        ("import tower.top, heavy", ["tower"]),
        # The program's own are what is edited: nobody wants those preloaded.
        ("import model", ["heavy"]),
        ("import inside", ["inside"]),
        ("try: import broken\nexcept ZeroDivisionError: pass", ["broken"]),
        ("try: import nowhere\nexcept ImportError: pass", []),
    ],
)
def test_what_is_told(place: Path, program: str, modules: list[str]) -> None:
    assert told(place, program) == modules


def test_nothing_is_to_be_seen_on_the_module(place: Path) -> None:
    program = (
        "import heavy, importlib\n"
        "assert 'exec_module' not in vars(heavy.__loader__), vars(heavy.__loader__)\n"
        "assert type(heavy.__loader__).__name__ == 'SourceFileLoader'\n"
        "importlib.reload(heavy)"
    )
    assert told(place, program) == ["heavy", "heavy"]


def test_no_debugger_stops_in_what_the_program_calls_of_it() -> None:
    """Step Into on an `import` line leads to the module, not into tk's own code."""
    called = [import_timer._Timer, import_timer._is_programs_own, library_code.load]
    found = [code for one in called for code in code_of(one)]
    names = {code.co_name for code in found}
    assert {"find_spec", "_time", "exec_module", "_is_programs_own", "load"} <= names
    assert {code.co_filename for code in found} == {"<frozen tunnelkit>"}
    # Nothing else of the module is called once it watches.
    functions = [one for _, one in inspect.getmembers(import_timer, inspect.isfunction)]
    kept = [one for one in functions if code_of(one)[0].co_filename == import_timer.__file__]
    assert kept == [import_timer.watch_imports]


def test_pydevd_takes_it_for_a_librarys() -> None:
    code = (
        "import debugpy\n"
        "from debugpy.server import api\n"
        "from _pydevd_bundle.pydevd_filtering import FilesFiltering\n"
        "print(FilesFiltering().in_project_roots('<frozen tunnelkit>'))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
