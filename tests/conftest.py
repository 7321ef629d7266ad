"""Fixtures of the whole suite: the labs, and projects that use them."""

pytest_plugins = ["tests.lab_fixtures", "tests.support.tkrig"]
