"""The promises that the stand-ins keep, kept by a real OpenPBS, with history and without."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.contract.scheduler.rig import Cluster, until
from tests.contract.scheduler.test_pbs_on_a_cluster import (  # noqa: F401
    test_a_directive_in_the_body_changes_nothing,
    test_a_full_node_is_waited_for,
    test_a_held_job,
    test_a_job_that_never_was_is_unknown,
    test_a_server_that_is_away_ends_nothing,
    test_find_knows_only_unfinished_jobs_of_that_exact_name,
    test_json_that_cannot_be_read_is_asked_for_once,
    test_refused_at_once,
    test_several_jobs_with_one_command,
    test_submit_run_cancel,
    test_the_walltime_ends_it,
    test_what_can_never_run_is_known,
)
from tests.support.openpbs import Site
from tunnelkit.scheduler.detect import DETECT, parse_detect
from tunnelkit.scheduler.factory import adapter

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]


class OnSite(Cluster):
    """Runs its commands on the site's login host, in a shell that is no login shell."""

    site: Site

    def remote_argv(self, argv: Sequence[str]) -> list[str]:
        return self.site.hosts["login"].argv(*argv, user="ann", login_shell=False)

    def home(self, name: str) -> Path:
        return self.site.home / name

    def file(self, node: str, path: str) -> str:
        return self.site.on(node, "cat", path)


class Administrator:
    """What the suite does to a server."""

    def __init__(self, site: Site) -> None:
        self._pbs = site.pbs

    def set(self, *, down: bool) -> None:
        if down:
            # What has not quite begun would begin once more.
            until(lambda: all(job["substate"] == "42" for job in self._pbs.jobs()), "all begun")
            self._pbs.stop_server()
        else:
            self._pbs.start_server()


@pytest.fixture
def server(site: Site) -> Administrator:
    return Administrator(site)


@pytest.fixture(params=[True, False], ids=["history", "no history"])
def pbs(request: pytest.FixtureRequest, site: Site) -> Iterator[Cluster]:
    site.pbs.qmgr(f"set server job_history_enable = {request.param}")
    looking = OnSite(site.info, scheduler=None)  # type: ignore[arg-type]
    looking.site = site
    found = parse_detect(looking.run(DETECT))
    assert (found.name, found.version, found.history) == ("pbs", "23.06.06", request.param)
    scheduler = adapter("auto", found, "login")
    assert scheduler is not None
    looking.scheduler = scheduler
    try:
        yield looking
    finally:
        site.heal()
        site.pbs.clear()
        for file in site.home.glob("tk-*"):
            file.unlink()
