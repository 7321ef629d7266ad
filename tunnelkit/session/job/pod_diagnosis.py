"""`tk why` about pods: two requests to the API server, and what they say."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

from tunnelkit.config.schema import Settings
from tunnelkit.diagnosis.pods import judge_pods
from tunnelkit.diagnosis.verdict import Diagnosis
from tunnelkit.errors import SchedulerError, UsageError
from tunnelkit.model import Completed
from tunnelkit.scheduler.base import Command, Where
from tunnelkit.scheduler.kube.adapter import pods_in
from tunnelkit.scheduler.kube.members import parse_choice
from tunnelkit.scheduler.kube.pod_views import (
    ask_events,
    ask_refusals,
    parse_events,
    parse_refusals,
    pod_views,
)

_NOT_FOUND = 404
Ask = Callable[[Command], Awaitable[Completed]]


async def diagnose_pods(ask: Ask, settings: Settings, named: str | None) -> Diagnosis:
    """Return what is the matter with the pods that are named, as `tk up` names them; None: those
    of `[allocation] pod`. Raises SchedulerError, ConnectionFailed, UsageError."""
    wanted = named or settings.allocation.pod
    if wanted is None:
        raise UsageError(
            "which pod? none is named", hint="tk why POD; or set `pod` under [allocation]"
        )
    choice = parse_choice(wanted)
    namespace = settings.cluster.namespace or ""
    done = await ask(Command(("GET", choice.path(namespace)), b"", Where.API))
    if done.exit_code == _NOT_FOUND:
        raise SchedulerError(
            f"there is no {choice.written} in this namespace",
            hint="`kubectl get pods` lists what is there",
        )
    pods = choice.members(pods_in(done))
    views = pod_views(pods, settings.cluster.container)
    owner = "" if choice.pod else choice.written
    refusals: list[str] = []
    if choice.name and all(one.code == "pod-runs" for one in views):
        refusals = parse_refusals(await ask(ask_refusals(namespace)), choice, pods)
    stage, verdicts = judge_pods(views, owner=owner, refusals=refusals)
    worst = next((at for at, one in enumerate(views) if one.code == verdicts[0].code), None)
    if worst is not None:
        events = parse_events(await ask(ask_events(namespace, pods[worst])))
        views[worst] = replace(views[worst], events=tuple(events))
        stage, verdicts = judge_pods(views, owner=owner, refusals=refusals)
    return Diagnosis(choice.written, stage, verdicts, asked_s=time.time())
