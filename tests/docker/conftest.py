"""One engine for a run, one site for a file of tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.docker.engine import Docker, docker_engine, provide_base_image, why_no_docker
from tests.docker.site import Site, SiteProject, running_site
from tests.support.logins import Budget, allowed, check
from tests.support.tkrig import made_project


@pytest.fixture(scope="session")
def docker() -> Iterator[Docker]:
    if reason := why_no_docker():
        pytest.skip(reason)
    with docker_engine() as engine:
        provide_base_image(engine)
        yield engine


@pytest.fixture(scope="module")
def site(docker: Docker) -> Iterator[Site]:
    """A bastion, a login node and two compute nodes; leave them running and connected."""
    with running_site(docker) as made:
        yield made


@pytest.fixture(autouse=True)
def _counted(request: pytest.FixtureRequest, site: Site) -> Iterator[None]:
    """Every test answers for its authentications; see tests/support/logins.py."""
    logs = site.logins()
    yield
    check((log, Budget(allowed(request, log.host))) for log in logs)


@pytest.fixture
async def site_project(site: Site) -> AsyncIterator[SiteProject]:
    async with made_project(lambda base: SiteProject(site, base)) as made:
        yield made
