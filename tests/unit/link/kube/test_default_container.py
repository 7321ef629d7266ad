"""The container of an exec, as kubectl chooses it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.link.kube.pod_streams import default_container
from tunnelkit.link.kube.target import KubeTarget

_KEY = "kubectl.kubernetes.io/default-container"


@pytest.mark.parametrize(
    ("names", "annotations", "found"),
    [
        (["main"], None, ""),
        (["main", "istio-proxy"], None, "main"),
        (["istio-proxy", "main"], {_KEY: "main"}, "main"),
        (["a", "b"], {_KEY: "gone"}, "a"),
    ],
)
def test_the_marked_one_else_the_first(
    names: list[str], annotations: dict[str, str] | None, found: str
) -> None:
    metadata = {"name": "p"} if annotations is None else {"annotations": annotations}
    pod = {"metadata": metadata, "spec": {"containers": [{"name": one} for one in names]}}
    assert default_container(json.dumps(pod).encode()) == found
    url = KubeTarget("c", "ml").exec_url("p", ["sh"], container=found)
    assert ("container=" in url) is bool(found)
    assert "container=mine" in KubeTarget("c", "ml", container="mine").exec_url("p", ["sh"])


@given(st.binary(max_size=80))
def test_any_answer_is_read(body: bytes) -> None:
    assert isinstance(default_container(body), str)
