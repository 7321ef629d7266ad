"""Imports that are not there, told without importing anything."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import tunnelkit.script_check.imports as source

PROGRAM = """\
import sys, json
import os.path
import not_there
import helper, pkg.inner, pkg.gone
from . import sibling
try:
    import optional
except ImportError:
    optional = None
try:
    import needed_after_all
finally:
    pass
if sys.platform == "win32":
    import winreg_like
def later():
    import only_later
from tunnelkit_nowhere.x import y
raise SystemExit("it was executed")
"""


def look(directory: Path, kind: str, target: str, text: str = "") -> Any:
    """What the program prints, in an interpreter of its own."""
    code = Path(source.__file__).read_text()
    done = subprocess.run(
        [sys.executable, "-c", code, kind, target, str(directory)],
        input=text,
        capture_output=True,
        text=True,
        cwd=directory,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def names(found: Any, *, needed: bool) -> list[str]:
    return [one["name"] for one in found["missing"] if one["needed"] is needed]


def written(directory: Path) -> Path:
    (directory / "main.py").write_text(PROGRAM)
    (directory / "helper.py").write_text("import also_missing\nopen('ran', 'w')\n")
    (directory / "pkg").mkdir()
    (directory / "pkg" / "__init__.py").write_text("open('ran', 'w')\n")
    (directory / "pkg" / "inner.py").write_text("from . import near\nfrom .far import x\n")
    (directory / "pkg" / "near.py").write_text("import near_lacks\n")
    (directory / "pkg" / "far.py").write_text("x = 1\n")
    return directory


def test_a_program_s_imports_and_those_of_its_own_modules(tmp_path: Path) -> None:
    found = look(written(tmp_path), "file", "main.py")
    assert sorted(names(found, needed=True)) == sorted([
        "not_there", "needed_after_all", "tunnelkit_nowhere.x", "also_missing", "near_lacks",
    ])  # fmt: skip
    # pkg.gone may be made by pkg itself.
    assert sorted(names(found, needed=False)) == ["only_later", "pkg.gone", "winreg_like"]
    assert found["missing"][0]["line"] == 3
    assert found["files"] == 6
    assert found["version"].startswith(f"{sys.version_info[0]}.{sys.version_info[1]}.")
    assert not (tmp_path / "ran").exists()


def test_a_module_and_a_text(tmp_path: Path) -> None:
    written(tmp_path)
    assert names(look(tmp_path, "module", "pkg.inner"), needed=True) == ["near_lacks"]
    assert names(look(tmp_path, "module", "helper"), needed=True) == ["also_missing"]
    assert names(look(tmp_path, "module", "nothing"), needed=True) == ["nothing"]
    found = look(tmp_path, "text", "the script", "import helper, gone\n")
    assert names(found, needed=True) == ["gone"]


def test_what_can_not_be_read(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("def f(:\n")
    found = look(tmp_path, "file", "bad.py")
    assert "bad.py" in found["errors"][0] and "line 1" in found["errors"][0]
    assert "No such file" in look(tmp_path, "file", "gone.py")["problem"]
    (tmp_path / "deep.py").write_text("x = " + "(" * 5000 + ")" * 5000)
    assert look(tmp_path, "file", "deep.py")["errors"]
