"""Fixtures of the whole suite: the labs, projects that use them, mirrors."""

from hypothesis import settings

pytest_plugins = [
    "tests.lab_fixtures",
    "tests.support.tkrig",
    "tests.support.mirror_rig",
    "tests.support.watch_rig",
]

# No example is judged by its time: the machine may be busy.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
