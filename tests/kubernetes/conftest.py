"""One real cluster for all of these tests; a namespace and a member for each file of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.support.kubernetes import Member, Rig, running_rig, why_no_rig
from tests.support.kubernetes.project import POD, RigProject, pod
from tests.support.ports import free_port
from tests.support.tkrig import made_project


@pytest.fixture(scope="session")
def relay_port() -> int:
    return free_port()


@pytest.fixture(scope="session")
def rig(relay_port: int) -> Iterator[Rig]:
    if reason := why_no_rig():
        pytest.skip(reason)
    with running_rig(relay_port) as made:
        yield made


@pytest.fixture(scope="module")
def member(rig: Rig, relay_port: int) -> Iterator[Member]:
    """Who has the role `edit` in a namespace as OpenShift makes one."""
    with rig.member(relay_port) as made:
        yield made


@pytest.fixture(scope="module")
def ml_dev_env(member: Member) -> None:
    """POD, as somebody has made it before tk comes."""
    member.make(pod(POD))
    member.wait_ready(POD)


@pytest.fixture
async def project(member: Member) -> AsyncIterator[RigProject]:
    """A project of the member's."""
    try:
        async with made_project(lambda base: RigProject(member, base)) as made:
            yield made
    finally:
        member.rig.network("heal")
