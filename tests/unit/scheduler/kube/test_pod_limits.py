"""What ends a running pod although its program lives."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tunnelkit.scheduler.kube.pod_limits import pause_risk, time_left_s

#: 2026-11-27T04:00:00Z
NOW_S = 1795752000.0


def pod(limit: object = None, start: object = "2026-11-27T03:00:00Z", **container: Any) -> Any:
    made: dict[str, Any] = {
        "spec": {"containers": [{"name": "proxy"}, {"name": "main", **container}]},
        "status": {"startTime": start},
    }
    if limit is not None:
        made["spec"]["activeDeadlineSeconds"] = limit
    return made


@pytest.mark.parametrize(
    ("limit", "start", "left"),
    [
        (7200, "2026-11-27T03:00:00Z", 3600),
        (7200, "2026-11-27T04:00:00+01:00", 3600),
        (60, "2026-11-27T03:00:00Z", 1),
        (None, "2026-11-27T03:00:00Z", None),
        (7200, None, None),
        (7200, "soon", None),
        (True, "2026-11-27T03:00:00Z", None),
        ("7200", "2026-11-27T03:00:00Z", None),
        (1 << 70, "2026-11-27T03:00:00Z", None),
    ],
)
def test_the_time_that_is_left(limit: object, start: object, left: int | None) -> None:
    assert time_left_s(pod(limit, start), NOW_S) == left


@pytest.mark.parametrize(
    ("probe", "risk"),
    [
        (None, ""),
        ({"tcpSocket": {"port": 1}}, ""),
        ({"httpGet": {"port": 1}}, r"livenessProbe \(HTTP\) may fail at a breakpoint.*about 30 s"),
        ({"grpc": {}, "periodSeconds": 5, "failureThreshold": 1}, "gRPC.*about 5 s"),
        ({"exec": {}, "periodSeconds": "x", "failureThreshold": -1}, "a command.*about 30 s"),
        ("x", ""),
    ],
)
def test_a_probe_that_the_program_must_answer(probe: object, risk: str) -> None:
    made = pod(livenessProbe=probe)
    found = pause_risk(made, "main")
    assert re.search(risk, found) if risk else not found
    assert pause_risk(made, "proxy") == "" and pause_risk({}, None) == ""
