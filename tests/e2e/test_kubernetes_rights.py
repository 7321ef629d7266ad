"""A user with few rights: `tk up` works with those it needs, and `tk doctor` agrees."""

from __future__ import annotations

from typing import Any

from tests.support.kube_rig import KubeProject, dev_pod, dev_project, kill_session
from tunnelkit.lab.kube.stand_in import StandIn

__all__ = ["dev_pod", "dev_project"]

ALL = (
    *("get pods", "list pods", "create pods", "delete pods", "list events", "get events"),
    *("get pods/exec", "create pods/exec"),
)


def deny(pods: StandIn, *rights: str, but_for: tuple[str, ...] = ()) -> None:
    pods.ask("POST", "/standin/deny", {"rights": list(rights), "but_for": list(but_for)})


async def checks(project: KubeProject, code: int = 0) -> dict[str, Any]:
    done = await project.tk("doctor", "--json", code=code)
    return {one["name"]: one for one in done.json["checks"]}


async def test_rights_on_one_named_pod_are_enough_for_it(
    pods: StandIn, project: KubeProject
) -> None:
    """Also for `tk down`, after a killed session too."""
    deny(pods, *ALL, but_for=("ml-dev-env",))
    project.configure('[allocation]\npod = "ml-dev-env"\n')
    found = await checks(project)
    assert found["rights"]["status"] == "warn" and found["pod"]["status"] == "ok"
    assert "may not list pods, create pods" in found["rights"]["found"]
    assert (await project.up())["state"] == "ready"
    assert (await project.tk("run", "echo", "inside")).out == "inside\n"
    await project.tk("down")
    await project.up("ml-dev-env")
    kill_session(project)
    done = await project.tk("down")
    assert "its agent was ended; pod/ml-dev-env goes on" in done.out + done.err


async def test_what_can_not_be_used_names_the_right_that_is_missing(
    pods: StandIn, project: KubeProject
) -> None:
    deny(pods, *ALL, but_for=("ml-dev-env",))
    found = await checks(project, 13)
    assert "may not get pods" in found["rights"]["found"]
    assert "pod = " in found["rights"]["fix"]
    project.configure('[allocation]\npod = "statefulset/w"\n')
    found = await checks(project, 13)
    assert "you may not list pods, get pods, create pods/exec" in found["rights"]["found"]
    refused = await project.tk("up", code=7)
    assert "cannot list resource" in refused.err and "pods" in refused.err
    refused = await project.tk("up", "--image", "standin:1", code=7)
    assert "cannot list resource" in refused.err
