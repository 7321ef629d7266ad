"""pathMappings against the mirror: what is added, corrected, kept."""

from __future__ import annotations

import os
import posixpath
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.debug.dap import path_mappings
from tunnelkit.debug.dap.path_mappings import MappedRoots, correct
from tunnelkit.mount_points import kind_of

MIRROR = MappedRoots("/home/me/code", "/scratch/me/code", fold_case=False)
OURS = ("/home/me/code", "/scratch/me/code")
SITE = ("/opt/venv/lib/site-packages", "/usr/lib/python3/site-packages")

Pair = tuple[str, str]


def listed(*pairs: Pair) -> list[dict[str, str]]:
    return [{"localRoot": local, "remoteRoot": remote} for local, remote in pairs]


def corrected(mirror: MappedRoots, *pairs: Pair) -> tuple[list[Pair], tuple[str, ...]] | None:
    correction = correct(listed(*pairs), mirror)
    if correction is None:
        return None
    return [(one["localRoot"], one["remoteRoot"]) for one in correction.mappings], correction.wrong


@pytest.mark.parametrize("given_", [None, [], "nonsense"])
def test_missing_ones_are_added_without_a_word(given_: object) -> None:
    correction = correct(given_, MIRROR)
    assert correction is not None
    assert correction.mappings == listed(OURS)
    assert correction.wrong == ()


@pytest.mark.parametrize(
    "pairs",
    [
        [OURS],
        [("/home/me/code/", "/scratch/me/code/")],
        [("/home/me/./code//", "/scratch/me/x/../code")],
        [OURS, SITE],
        [SITE, OURS],
        [("/home/me/code/src", "/scratch/me/code/src"), OURS],
        # A parent that comes to the same.
        [("/home/me", "/scratch/me")],
        # A virtual environment in the project is elsewhere on the node: the mirror says nothing.
        [("/home/me/code/.venv/lib", "/opt/conda/lib"), OURS],
    ],
    ids=str,
)
def test_what_agrees_is_left_alone(pairs: list[Pair]) -> None:
    assert corrected(MIRROR, *pairs) is None


@pytest.mark.parametrize(
    ("pairs", "result"),
    [
        ([("/home/me/code", "/home/old/code")], [OURS]),
        ([("/home/me/code/", "/home/old/code/")], [("/home/me/code/", OURS[1])]),
        ([("/home/me/code", "~/code")], [OURS]),
        ([SITE, ("/home/me/code", "/old")], [SITE, OURS]),
        # An old root, given for a directory inside too.
        ([("/home/me/code/src", "/old/src")], [OURS]),
        ([("/home/me/code/src", "/scratch/me/code")], [OURS]),
        # The workspace above the mirror was mapped to the mirror's remote root.
        ([("/home/me", "/scratch/me/code")], [OURS]),
        ([("/", "/")], [OURS]),
        # What lies beside the mirror may well be there; ours comes first.
        ([("/home/me", "/home/me2")], [OURS, ("/home/me", "/home/me2")]),
    ],
    ids=str,
)
def test_what_contradicts_is_taken_from_the_mirror(pairs: list[Pair], result: list[Pair]) -> None:
    wrong = tuple(pair[1] for pair in pairs if pair != SITE)
    assert corrected(MIRROR, *pairs) == (result, wrong)


@pytest.mark.parametrize(
    ("pair", "result"),
    [
        (("${workspaceFolder}", "/scratch/me/code"), OURS),
        (("${workspaceFolder:code}/", "/scratch/me/code"), OURS),
        # The mirror is the directory `code` of the workspace.
        (("${workspaceFolder}/code", "/scratch/me/code"), OURS),
        (("/home/me/code", "."), OURS),
        (("/home/me/code/src", "."), ("/home/me/code/src", "/scratch/me/code/src")),
    ],
    ids=str,
)
def test_what_is_only_unexpanded_is_expanded_without_a_word(pair: Pair, result: Pair) -> None:
    found = corrected(MIRROR, pair)
    assert found is not None
    assert found[0][0] == result
    assert found[1] == ()


def test_home_is_expanded() -> None:
    mirror = MappedRoots(f"{Path.home()}/code", "/r/code", fold_case=False)
    assert corrected(mirror, ("~/code", "/r/code")) == ([(mirror.local_root, "/r/code")], ())


def test_a_consistent_part_is_kept_and_the_rest_added() -> None:
    part = ("/home/me/code/src", "/scratch/me/code/src")
    assert corrected(MIRROR, part) == ([part, OURS], ())


def test_the_same_path_on_both_sides_needs_no_mapping() -> None:
    same = MappedRoots("/home/me/code", "/home/me/code", fold_case=False)
    assert corrected(same) is None
    assert corrected(same, OURS) == ([("/home/me/code", "/home/me/code")], (OURS[1],))


@pytest.mark.parametrize("local", ["/users/ME/Code", "/Users/me/code/"])
def test_macos_ignores_case_and_keeps_the_editors_spelling(local: str) -> None:
    mirror = MappedRoots("/Users/me/code", "/r", fold_case=True)
    assert corrected(mirror, (local, "/r")) is None
    assert corrected(mirror, (local, "/old")) == ([(local, "/r")], ("/old",))
    assert corrected(
        MappedRoots("/Users/me/code", "/r", fold_case=False), ("/users/ME/Code", "/r")
    ) == (
        [("/users/ME/Code", "/r"), ("/Users/me/code", "/r")],
        (),
    )


@pytest.mark.parametrize("local", ["C:\\Users\\me\\code", "c:/Users/Me/code/"])
def test_windows_paths(local: str) -> None:
    mirror = MappedRoots("C:\\Users\\me\\code", "/r", fold_case=False)
    assert corrected(mirror, (local, "/r")) is None
    assert corrected(mirror, (local + "\\Src", "/r/Src"), (local, "/r")) is None
    assert mirror.holds("c:\\users\\ME\\code\\a.py")
    assert not mirror.holds("c:\\users\\ME\\code2\\a.py")


def test_entries_that_are_no_mappings_stay() -> None:
    odd: list[object] = [
        {"localRoot": 3},
        "x",
        {"localRoot": "", "remoteRoot": "/r"},
        *listed(OURS),
    ]
    assert correct(odd, MIRROR) is None


def test_it_tells_what_the_launch_configuration_said() -> None:
    correction = correct(listed(("/home/me/code", "/old")), MIRROR)
    assert correction is not None
    assert correction.notice() == (
        "path mappings taken from the mirror: /home/me/code -> /scratch/me/code "
        "(the launch configuration said /old)"
    )


_name = st.sampled_from(["a", "b", "code", "me"])
_path = st.lists(_name, max_size=4).map(lambda words: "/" + "/".join(words))


@given(
    pairs=st.lists(st.tuples(_path, st.one_of(_path, st.sampled_from([".", "~/x"]))), max_size=4),
    local=_path,
    remote=_path,
    file=_name,
)
def test_a_file_of_the_mirror_is_found_where_it_is(
    pairs: list[Pair], local: str, remote: str, file: str
) -> None:
    """Whatever was given: the first mapping that matches, as pydevd looks it up, is right,
    unless it is one that leads elsewhere on purpose; and correcting twice changes nothing."""
    mirror = MappedRoots(local, remote, fold_case=False)
    correction = correct(listed(*pairs), mirror)
    mappings = listed(*pairs) if correction is None else correction.mappings
    again = correct(mappings, mirror)
    assert again is None or again.mappings == mappings
    path = posixpath.join(local, file)
    for mapping in mappings:
        root = mapping["localRoot"].rstrip("/")
        inside = root != local.rstrip("/") and f"{root}/".startswith(local.rstrip("/") + "/")
        if not inside and f"{path}/".startswith(root + "/"):
            there = mapping["remoteRoot"].rstrip("/") + path[len(root) :]
            assert there == posixpath.join(remote, file)
            return
    assert local == remote


LIB = MappedRoots("/home/me/lib", "/scratch/me/tk/lib", fold_case=False)
BOTH = MIRROR.with_also(LIB)
LIBS = ("/home/me/lib", "/scratch/me/tk/lib")


@pytest.mark.parametrize("pairs", [[OURS, LIBS], [LIBS, OURS], [LIBS, SITE, OURS]], ids=str)
def test_several_mirrors_that_agree(pairs: list[Pair]) -> None:
    assert corrected(BOTH, *pairs) is None


def test_each_of_several_mirrors_gets_its_mapping() -> None:
    assert corrected(BOTH) == ([OURS, LIBS], ())
    assert corrected(BOTH, OURS) == ([OURS, LIBS], ())
    assert corrected(BOTH, SITE, LIBS) == ([SITE, LIBS, OURS], ())
    beside = ("${workspaceFolder}/../lib", "/scratch/me/tk/lib")
    assert corrected(BOTH, OURS, beside) == ([OURS, LIBS], ())
    assert corrected(BOTH, OURS, ("/home/me/code/../lib", ".")) == ([OURS, LIBS], ())


def test_what_is_wrong_about_one_of_several_is_told_of_that_one() -> None:
    correction = correct(listed(OURS, ("/home/me/lib", "/old/lib")), BOTH)
    assert correction is not None and correction.mappings == listed(OURS, LIBS)
    assert correction.notice() == (
        "path mappings taken from the mirror: /home/me/lib -> /scratch/me/tk/lib "
        "(the launch configuration said /old/lib)"
    )


def test_a_mapping_that_is_right_for_one_and_wrong_for_another() -> None:
    """It has to go, and the one that it was right for needs one of its own."""
    correction = correct(listed(("/home/me", "/scratch/me")), BOTH)
    assert correction is not None
    assert sorted(map(str, correction.mappings)) == sorted(map(str, listed(OURS, LIBS)))
    again = correct(correction.mappings, BOTH)
    assert again is None


def test_a_file_is_held_by_any_of_them() -> None:
    assert BOTH.holds("/home/me/code/a.py") and BOTH.holds("/home/me/lib/x/b.py")
    assert not BOTH.holds("/home/me/library/b.py")


def test_a_project_that_is_opened_through_a_symlink(tmp_path: Path) -> None:
    """The mirror's root is resolved; the editor writes the link's name, and goes on doing so."""
    real = tmp_path / "data" / "proj"
    (real / "pkg").mkdir(parents=True)
    (real / "pkg" / "x.py").touch()
    link = tmp_path / "proj"
    link.symlink_to(real)
    mirror = MappedRoots(str(real), "/cluster/code", fold_case=False)
    assert mirror.holds(f"{link}/pkg/x.py") and mirror.holds(str(link))
    assert not mirror.holds(f"{tmp_path}/other/x.py") and not mirror.holds("/a\0b")

    def mapping(remote: str) -> list[dict[str, str]]:
        return [{"localRoot": str(link), "remoteRoot": remote}]

    assert correct(mapping("/cluster/code"), mirror) is None
    for old in ("/cluster/old", "."):
        found = correct(mapping(old), mirror)
        assert found is not None and found.mappings == mapping("/cluster/code")


def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that are looked at from now on."""
    seen: list[str] = []
    realpath = os.path.realpath

    def watched(path: str) -> str:
        seen.append(path)
        return realpath(path)

    monkeypatch.setattr(os.path, "realpath", watched)
    path_mappings._resolved.cache_clear()
    return seen


def test_no_file_is_looked_at_where_the_text_says_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """The session's loop asks: a mount that hangs would hold up all else."""
    other = MappedRoots("/mnt/cluster", "/r/proj", fold_case=False)
    mirrors = MIRROR.with_also(other)
    seen = looks(monkeypatch)
    assert mirrors.holds("/home/me/code/a.py") and mirrors.holds("/mnt/cluster/a/b.py")
    assert seen == []


@pytest.mark.parametrize(("kind", "asks"), [("fuse.sshfs", False), ("ext4", True)])
def test_symlinks_below_an_sshfs_are_not_followed(
    kind: str, asks: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mounts = (("/", "ext4"), ("/mnt/cluster", "ext4"), ("/mnt/cluster", kind))
    table = tmp_path / "mountinfo"
    table.write_text("".join(f"1 2 0:3 / {place} rw - {one} x rw\n" for place, one in mounts))
    monkeypatch.setattr(path_mappings, "kind_of", partial(kind_of, table=table))
    seen = looks(monkeypatch)
    assert not MIRROR.holds("/mnt/cluster/../cluster/a.py")
    assert bool(seen) is asks
    assert not MIRROR.holds("/mnt/clusters/a.py")
    assert "/mnt/clusters/a.py" in seen
