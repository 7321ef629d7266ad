"""Whether git is at work in a tree: work trees of every kind, and locks that count no more."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from tunnelkit.mirror.watch.git_activity import GitActivity, GitLock, git_dir
from tunnelkit.mirror.watch.suspend_detector import SuspendDetector


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    root.mkdir()
    for command in (
        "init -q",
        "-c user.name=a -c user.email=a@b commit -q --allow-empty -m x",
        "worktree add -q ../other",
    ):
        subprocess.run(["git", *command.split()], cwd=root, check=True, capture_output=True)
    return root


def test_every_kind_of_work_tree(repo: Path) -> None:
    (repo / "sub/dir").mkdir(parents=True)
    assert git_dir(str(repo)) == str(repo / ".git")
    assert git_dir(str(repo / "sub/dir")) == str(repo / ".git")
    found = git_dir(str(repo.parent / "other"))
    assert found is not None
    assert os.path.samefile(found, repo / ".git/worktrees/other")


def test_no_repository(tmp_path: Path) -> None:
    if git_dir(str(tmp_path.parent)) is not None:
        pytest.skip("the temporary directory lies in a repository")
    assert git_dir(str(tmp_path)) is None
    assert not GitLock(str(tmp_path)).held()


def test_held_and_let_go(repo: Path) -> None:
    lock = GitLock(str(repo))
    assert not lock.held()
    (repo / ".git/index.lock").touch()
    assert lock.held()
    (repo / ".git/index.lock").unlink()
    assert not lock.held()


def test_a_dead_gits_lock_is_not_waited_for(repo: Path) -> None:
    path = repo / ".git/index.lock"
    path.touch()
    os.utime(path, (time.time() - 60, time.time() - 60))
    assert not GitLock(str(repo)).held()


def test_one_that_was_given_up_and_the_next(repo: Path) -> None:
    lock = GitLock(str(repo))
    path = repo / ".git/index.lock"
    path.write_text("")
    lock.give_up()
    assert not lock.held()
    other = repo / ".git/other"
    other.touch()
    other.replace(path)
    assert lock.held()


def test_a_git_that_does_much_is_waited_for_and_one_that_waits_itself_is_not(repo: Path) -> None:
    busy = True
    path = repo / ".git/index.lock"
    path.touch()
    work = GitActivity(str(repo), lambda: busy)
    assert all(work.at_work(float(now)) for now in range(60))
    busy = False  # a `git commit` whose editor is open
    assert not work.at_work(90.0)
    assert work.worked(burst=False)
    work.settled(whole=True)
    assert not work.at_work(91.0)
    assert not work.worked(burst=False)


def test_no_git_is_waited_for_without_end(repo: Path) -> None:
    (repo / ".git/index.lock").touch()
    work = GitActivity(str(repo), lambda: True)
    assert not all(work.at_work(float(now)) for now in range(150))


def test_sleep_and_lateness_are_pauses() -> None:
    wall, mono = [1000.0], [50.0]
    pauses = SuspendDetector(1.0, wall=lambda: wall[0], mono=lambda: mono[0])

    def passed(wall_s: float, mono_s: float) -> bool:
        wall[0] += wall_s
        mono[0] += mono_s
        return pauses.noticed()

    assert not passed(1.0, 1.0)
    assert not passed(6.0, 6.0)  # a busy machine
    assert passed(600.0, 1.0)  # asleep
    assert not passed(1.0, 1.0)
    assert passed(30.0, 30.0)  # stopped
    assert passed(-3600.0, 1.0)  # the clock was set
    assert not passed(1.0, 1.0)
