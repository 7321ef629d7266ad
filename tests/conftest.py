"""Fixtures of the whole suite: the labs, projects that use them, mirrors."""

import os
import signal

import pytest
from hypothesis import settings

pytest_plugins = [
    "tests.lab_fixtures",
    "tests.support.hunt",
    "tests.support.logins",
    "tests.support.other_user",
    "tests.support.tkrig",
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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, so that nobody waits for them alone at the end; the unit tests'
    many short ones last."""
    items.sort(key=lambda item: _place(set(item.path.parts), item.path.stem))


def _place(parts: set[str], stem: str) -> int:
    if parts & {"vscode", "docker"} or stem in _LONG:
        return 0
    return 2 if "unit" in parts else 1
