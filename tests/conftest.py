"""Fixtures of the whole suite: the labs, projects that use them, mirrors."""

import os
import signal

import pytest
from hypothesis import settings

pytest_plugins = [
    "tests.lab_fixtures",
    "tests.support.hunt",
    "tests.support.run_limits",
    "tests.support.logins",
    "tests.support.other_user",
    "tests.support.tkrig",
    "tests.support.mirror_sshd",
    "tests.support.mirror_rig",
    "tests.support.watch_rig",
    "tests.support.login_rig",
    "tests.support.names_rig",
]

#: A minute or more each.
_LONG = {
    "test_mirror_cuts",
    "test_netns",
    "test_pbs",
    "test_slurm_requeue",
    "test_ssh_losses",
    "test_ssh_refusals",
    "test_ssh_scheduler",
}

# A shell starts what it runs in the background with Ctrl-C ignored, and every child of the tests
# would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No example is judged by its time: the machine may be busy. The same ones each time, so that a
# failure is the change's; TK_HUNT=1 has others tried (CONTRIBUTING.md).
settings.register_profile("untimed", deadline=None, derandomize=not os.environ.get("TK_HUNT"))
settings.load_profile("untimed")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The longest files first, so that nobody waits for them alone at the end; the unit tests'
    many short ones last. What an ordinary user runs meanwhile is left to him."""
    if os.environ.get("TK_TEST_LEFT_TO_ORDINARY_USER"):
        his = [one for one in items if _is_his(one)]
        config.hook.pytest_deselected(items=his)
        items[:] = [one for one in items if one not in his]
    items.sort(key=lambda item: _place(set(item.path.parts), item.path.stem))


def _is_his(item: pytest.Item) -> bool:
    """True if scripts/ordinary-user runs it."""
    place = "/".join(item.path.parts)
    chosen = any(part in place for part in ("/tests/hostile/", "/tests/faults/", "/test_main_job."))
    return chosen and not any(item.get_closest_marker(name) for name in ("root", "slow"))


def _place(parts: set[str], stem: str) -> int:
    if parts & {"vscode", "docker"} or stem in _LONG:
        return 0
    return 2 if "unit" in parts else 1
