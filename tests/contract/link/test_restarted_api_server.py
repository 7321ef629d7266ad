"""An API server that has just started refuses for a moment what it accepted before."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from every_link import KUBE, POD

from tests.support.kube_rig import kubectl, running_stand_in
from tunnelkit.config.schema import ClusterSettings
from tunnelkit.errors import ConnectionFailed
from tunnelkit.lab.kube.stand_in import StandIn
from tunnelkit.link.kube.link import KubeLink
from tunnelkit.link.kube.target import KubeTarget
from tunnelkit.session.agent.pod_agent import PodAgent


@pytest.fixture(scope="module")
def pods() -> Iterator[StandIn]:
    with running_stand_in() as cluster:
        cluster.make_pod(POD)
        yield cluster


@pytest.fixture(params=KUBE)
async def link(
    request: pytest.FixtureRequest, home: Path, pods: StandIn
) -> AsyncIterator[KubeLink]:
    target = KubeTarget(pods.context, pods.namespace, kubectl=kubectl())
    made: KubeLink = KUBE[request.param](target, home / "ctl")
    await made.open()
    try:
        yield made
    finally:
        await made.close()
        know(pods)


def know(pods: StandIn, *denied: str) -> None:
    pods.ask("POST", "/standin/deny", {"rights": list(denied)})


async def refused(link: KubeLink, agent: PodAgent) -> list[ConnectionFailed]:
    errors = []
    for attempt in (agent.open, lambda: link.run(["true"], node=POD)):
        with pytest.raises(ConnectionFailed, match="you don't have the right") as caught:
            await attempt()
        errors.append(caught.value)
    return errors


async def test_what_was_accepted_before_is_tried_again(link: KubeLink, pods: StandIn) -> None:
    agent = PodAgent(
        link, ClusterSettings(), "a", POD, learn=lambda facts: None, starts=lambda: True
    )
    no_rights = ("get pods", "get pods/exec", "create pods/exec")
    know(pods, *no_rights)
    first = await refused(link, agent)
    assert not any(error.transient for error in first), "nobody knows that it would pass"
    know(pods)
    await (await agent.open()).close()
    know(pods, *no_rights)
    again = await refused(link, agent)
    assert all(error.transient and "tries again" in (error.hint or "") for error in again)
    know(pods)
    await (await agent.open()).close()
    assert (await link.run(["true"], node=POD)).exit_code == 0
