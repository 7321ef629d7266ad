"""Fixtures of the whole suite: the labs, projects that use them, mirrors."""

import pytest
from hypothesis import settings

pytest_plugins = [
    "tests.lab_fixtures",
    "tests.support.tkrig",
    "tests.support.mirror_rig",
    "tests.support.watch_rig",
    "tests.support.login_rig",
    "tests.support.names_rig",
]

# No example is judged by its time: the machine may be busy.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, so that nobody waits for them alone at the end."""
    items.sort(key=lambda item: not {"vscode", "docker"} & set(item.path.parts))
