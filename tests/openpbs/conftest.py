"""One site with a real OpenPBS for a file of tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.support.openpbs import Site, running_site, why_no_openpbs
from tests.support.openpbs.project import SiteProject
from tests.support.tkrig import made_project


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A login node with OpenPBS and two compute nodes; leave them as you found them."""
    if reason := why_no_openpbs():
        pytest.skip(reason)
    with running_site() as made:
        yield made


@pytest.fixture
async def project(site: Site) -> AsyncIterator[SiteProject]:
    """A project whose cluster is the site."""
    try:
        async with made_project(lambda base: SiteProject(site, base)) as made:
            yield made
    finally:
        site.heal()
        site.pbs.clear()
