"""Fixtures of the whole suite: the labs, projects that use them, mirrors."""

pytest_plugins = ["tests.lab_fixtures", "tests.support.tkrig", "tests.support.mirror_rig"]
