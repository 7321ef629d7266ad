"""New packages are found by a process that waited meanwhile, as by one that starts then."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from tunnelkit.debuggee import site_directories

WAITS = """\
import site, sys
from pathlib import Path
from tunnelkit.debuggee.site_directories import SiteDirectories
place, kind = Path(sys.argv[1], "site-packages"), sys.argv[2]
old = "import sys; sys.times = getattr(sys, 'times', 0) + 1"
if kind == "path":
    place.mkdir()
    (place / "old.pth").write_text(old)
    site.addsitedir(str(place))
else:
    site.ENABLE_USER_SITE, site.USER_SITE = kind == "enabled", str(place)
sys.path += [Path("site-packages"), b"site-packages"]
sites = SiteDirectories()
sites.read_new()
exec(sys.argv[3])
before = [*sys.path]
sites.read_new()
print([path for path in sys.path if path not in before], getattr(sys, "times", 0))
"""
INSTALL = """
place.mkdir(exist_ok=True)
source = place.parent / "src"
source.mkdir()
(place / "__editable__.mine.pth").write_text(str(source))
"""
DANGLING = "(place / 'a.pth').symlink_to('/no/such'); (place / 'b.pth').symlink_to('/no/such')"
APPENDS = "open(place / 'old.pth', 'a').write('\\n' + str(place.parent))"
BROKEN = "(place / 'a.pth').mkdir(); (place / 'b.pth').write_bytes(b'import no_such\\n\\xff\\n')"


def waits(directory: Path, kind: str, action: str) -> str:
    argv = [sys.executable, "-c", WAITS, str(directory), kind, action]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def test_a_new_pth_file_is_read_and_no_other_is_read_again(tmp_path: Path) -> None:
    assert waits(tmp_path, "path", INSTALL) == f"['{tmp_path}/src'] 1"


def test_one_that_leads_nowhere_hides_no_other(tmp_path: Path) -> None:
    assert waits(tmp_path, "path", DANGLING + INSTALL) == f"['{tmp_path}/src'] 1"


def test_a_pth_file_that_is_changed_in_place_is_read_again(tmp_path: Path) -> None:
    """`conda develop` appends to one."""
    assert waits(tmp_path, "path", APPENDS) == f"['{tmp_path}'] 2"


def test_the_users_own_directory_may_come_later(tmp_path: Path) -> None:
    assert (
        waits(tmp_path, "enabled", INSTALL) == f"['{tmp_path}/site-packages', '{tmp_path}/src'] 0"
    )


def test_the_users_own_directory_counts_only_where_python_uses_it(tmp_path: Path) -> None:
    assert waits(tmp_path, "disabled", INSTALL) == "[] 0"


@pytest.mark.parametrize("action", [BROKEN, "(place / 'old.pth').unlink(); place.rmdir()", "pass"])
def test_trouble_there_costs_no_run(tmp_path: Path, action: str) -> None:
    assert waits(tmp_path, "path", action) == "[] 1"


def test_an_editor_that_stops_at_raised_exceptions_or_at_the_entry_stops_in_none_of_it() -> None:
    """It runs once an editor is there, so pydevd traces it; and a directory may be missing."""
    owners = (site_directories, site_directories.SiteDirectories)
    functions = [
        one
        for owner in owners
        for one in vars(owner).values()
        if inspect.isfunction(one) and one.__module__ == site_directories.__name__
    ]
    assert len(functions) == 5
    assert {one.__code__.co_filename for one in functions} == {"<frozen tunnelkit>"}
