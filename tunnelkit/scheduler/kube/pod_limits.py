"""The limits that end a running pod although its program lives: its deadline, a liveness probe."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime

from tunnelkit.scheduler.kube.members import Pod, field, text
from tunnelkit.scheduler.kube.words import container_of

_LONGEST_S = 10 * 365 * 86400
#: The API's own defaults for a probe.
_PERIOD_S, _FAILURES = 10, 3
#: Kinds of probes that the program itself must answer. A TCP connection is the kernel's answer.
_ASKS_PROGRAM = {"httpGet": "HTTP", "grpc": "gRPC", "exec": "a command"}


def time_left_s(pod: Pod, now_s: float) -> int | None:
    """Return the seconds until `activeDeadlineSeconds`; None without one. now_s: of the epoch.

    At least 1: this computer's clock may be ahead, and 0 would say that the pod has ended.
    """
    limit_s = field(pod, "spec", "activeDeadlineSeconds")
    if isinstance(limit_s, bool) or not isinstance(limit_s, int) or not 0 < limit_s < _LONGEST_S:
        return None
    try:
        began_s = datetime.fromisoformat(text(pod, "status", "startTime")).timestamp()
    except (ValueError, OverflowError):
        return None
    return max(1, math.ceil(began_s + limit_s - now_s))


def pause_risk(pod: Pod, wanted: str | None) -> str:
    """Return in words that a probe ends the container's own program at a breakpoint; "" if none.

    wanted: the container of the settings."""
    name = container_of(pod, wanted)
    containers = field(pod, "spec", "containers")
    for one in containers[:64] if isinstance(containers, list) else ():
        probe = field(one, "livenessProbe")
        if text(one, "name") != name or not isinstance(probe, Mapping):
            continue
        how = next((words for key, words in _ASKS_PROGRAM.items() if key in probe), "")
        if not how:
            return ""
        after_s = _number(probe, "periodSeconds", _PERIOD_S)
        after_s *= _number(probe, "failureThreshold", _FAILURES)
        return (
            f"its livenessProbe ({how}) may fail at a breakpoint: the container is then restarted "
            f"after about {after_s} s"
        )
    return ""


def _number(probe: Mapping[str, object], key: str, default: int) -> int:
    value = probe.get(key)
    return value if isinstance(value, int) and 0 < value < _LONGEST_S else default
