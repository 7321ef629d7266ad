"""Symlinks by policy, and the word about those that dangle on the cluster."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tunnelkit.mirror.explain import by_policy, explain
from tunnelkit.mirror.tree.ignore import IgnoreRules
from tunnelkit.mirror.tree.scanner import Scanner
from tunnelkit.mirror.tree.symlinks import IGNORE, KEEP, SymlinkPolicy, leads_out


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "root"
    (made / "dir").mkdir(parents=True)
    (made / "a.py").write_text("a")
    return made


def scan(root: Path, links: SymlinkPolicy) -> set[str]:
    return set(Scanner(str(root), IgnoreRules(), links.judge, kinds=links.kinds).scan().entries)


@pytest.mark.parametrize(
    ("path", "target", "out"),
    [
        ("in", "a.py", False),
        ("dir/in", "../a.py", False),
        ("gone", "nothing", False),
        ("self", "self", False),
        ("dir/back", "../dir/./../a.py", False),
        ("up", "..", True),
        ("dir/out", "../../x", True),
        ("dir/deep", "../dir/../../x", True),
        ("absolute", "/data", True),
    ],
)
def test_where_a_link_leads_is_read_from_its_text(
    root: Path, path: str, target: str, out: bool
) -> None:
    (root / path).symlink_to(target)
    assert leads_out(str(root), path) == (target if out else None)


def test_kept_links_are_sent_and_those_that_lead_out_named_once(root: Path) -> None:
    (root / "in").symlink_to("a.py")
    (root / "out").symlink_to("../x\n")
    links = SymlinkPolicy(KEEP)
    assert scan(root, links) == {"a.py", "dir", "in", "out"}
    one = (
        "a symlink leads out of the mirrored directory, to nothing on the cluster: 'out -> ../x\\n'"
    )
    assert links.current() == (one,)
    assert links.news() == [one]
    scan(root, links)
    assert links.news() == [] and links.current() == (one,)
    (root / "dir" / "data").symlink_to("/data")
    scan(root, links)
    assert links.news() == [
        "a symlink leads out of the mirrored directory, to nothing on the cluster: "
        "dir/data -> /data"
    ]
    assert links.current()[0].startswith("2 symlinks lead out")


def test_a_link_that_was_mended_is_not_spoken_of(root: Path) -> None:
    out = root / "out"
    out.symlink_to("/data")
    links = SymlinkPolicy(KEEP)
    scan(root, links)
    assert links.current()
    out.unlink()
    out.symlink_to("a.py")
    scan(root, links)
    assert links.current() == () and links.news() == []


def test_ignored_links_are_not_sent(root: Path) -> None:
    (root / "in").symlink_to("a.py")
    (root / "out").symlink_to("/data")
    links = SymlinkPolicy(IGNORE)
    assert scan(root, links) == {"a.py", "dir"}
    assert links.current() == () and links.news() == []


def test_it_is_explained(root: Path) -> None:
    (root / "in").symlink_to("dir")

    def told(path: str, policy: str) -> tuple[bool, str]:
        full = os.path.join(root, path)
        found = by_policy(explain(str(root), IgnoreRules(), full), policy)
        return found.mirrored, found.reason

    assert told("in", KEEP)[0]
    assert told("in", IGNORE) == (False, 'a symlink, and [mirror] symlinks = "ignore"')
    assert told("in/x", IGNORE) == (
        False,
        "in is a symlink, neither sent nor followed (it leads to dir/x)",
    )
    assert told("a.py", IGNORE) == told("a.py", KEEP)
