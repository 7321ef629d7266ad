"""The backend of Kubernetes and OpenShift: a node is a pod, and there is no login host."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from tunnelkit.config.schema import Settings
from tunnelkit.errors import ConfigError, UsageError
from tunnelkit.link.base import ByteStream, Link
from tunnelkit.link.kube.factory import KUBE_LINKS
from tunnelkit.model import Completed
from tunnelkit.scheduler.base import Command, Scheduler
from tunnelkit.session.agent.install import Installed
from tunnelkit.session.agent.routes import Route
from tunnelkit.session.backends.backend import AgentAddress, Backend

if TYPE_CHECKING:
    from tunnelkit.diagnosis.verdict import Diagnosis
    from tunnelkit.link.kube.link import KubeLink
    from tunnelkit.session.agent.pod_agent import PodAgent
    from tunnelkit.session.doctor.check import Check

#: The settings of ssh clusters, each with the reason why a pod has none of it.
_NOT_HERE = {
    "jump": "kubectl finds its way by the kubeconfig",
    "ssh_config": "there is no ssh in a pod",
}


def choose_pods(settings: Settings, named: str | None, selector: str | None) -> str | None:
    """Return the pods to adopt, as their job id; None to make what `[allocation]` says.

    named: POD or TYPE/NAME, selector: of labels; they win over the settings. Raises UsageError."""
    from tunnelkit.scheduler.kube.members import parse_choice

    asked = settings.allocation
    makes = {"an image": "image", "a manifest": "manifest"}
    given = [words for words, key in makes.items() if _by_flag(settings, key)]
    given += ["a pod"] if named is not None else []
    given += ["a label selector"] if selector is not None else []
    if len(given) > 1:
        raise UsageError(" and ".join(given[:2]), hint="give one of them")
    if selector is not None:
        return parse_choice(f"-l {selector}").written
    if named is not None:
        return parse_choice(named).written
    if given or asked.pod is None:
        from tunnelkit.session.job.pod_templates import uses_manifest

        if asked.image is None and asked.manifest is None:
            raise UsageError(
                "which pod? none is named",
                hint="tk up POD adopts one, tk up --image IMAGE makes one; or set `pod` under "
                "[allocation]",
            )
        if uses_manifest(settings):
            _check_manifest(settings)
        return None
    return parse_choice(asked.pod).written


def _by_flag(settings: Settings, key: str) -> bool:
    return settings.origins[f"allocation.{key}"].kind == "flag"


def _check_manifest(settings: Settings) -> None:
    """Refuse a file that is not there, and options that say what to ask for: the manifest says it.

    Raises UsageError."""
    file = Path(settings.project_dir, settings.allocation.manifest or "")
    if not file.is_file():
        raise UsageError(f"there is no file {file}", hint="tk up -f FILE, a manifest for kubectl")
    for name, origin in settings.origins.items():
        section, _, key = name.partition(".")
        if section == "allocation" and origin.kind == "flag" and key not in ("manifest", "queue"):
            raise UsageError(
                f"--{key} and a manifest: the manifest says what to ask for",
                hint=f"leave --{key} out, or change the file",
            )


class PodRoute:
    """The exec stream into a pod."""

    name = title = "exec"

    def __init__(self, agent: PodAgent) -> None:
        self._agent = agent

    async def open(self) -> ByteStream:
        """See `Route.open`."""
        return await self._agent.open()


async def _detect(link: Link) -> str:
    return "kubernetes"


async def _find_scheduler(link: Link, settings: Settings) -> Scheduler | None:
    # Sessions by ssh need none of it.
    from tunnelkit.scheduler.kube.adapter import Kubernetes
    from tunnelkit.session.job.pod_templates import template_of

    for key, why in _NOT_HERE.items():
        if getattr(settings.cluster, key):
            raise ConfigError(f"[cluster] {key} means nothing here", cause=why, hint="leave it out")
    template = refusal = None
    try:
        template = await template_of(settings)
    except UsageError as error:
        refusal = error  # what a killed session has made can be found and ended all the same
    return Kubernetes(
        settings.cluster.namespace or "",
        container=settings.cluster.container,
        template=template,
        refusal=refusal,
    )


def _pod_agent(to: AgentAddress) -> PodAgent:
    from tunnelkit.session.agent.pod_agent import PodAgent

    return PodAgent(
        _kube(to.link),
        to.settings.cluster,
        to.name,
        to.node,
        learn=to.learn,
        starts=to.may_start,
        is_main=to.is_ours,
    )


def _routes(to: AgentAddress) -> list[Route]:
    return [PodRoute(_pod_agent(to))]


def _serve_words(
    scheduler: Scheduler, settings: Settings, name: str, installed: Installed | None
) -> list[str]:
    return ["serve", name]


def _job_body(settings: Settings, name: str) -> str:
    """Return the words of the container's command, quoted for sh."""
    from tunnelkit.session.agent.pod_agent import hold_argv

    return shlex.join(hold_argv(name, settings.cluster))


def _kube(link: Link) -> KubeLink:
    from tunnelkit.link.kube.link import KubeLink

    assert isinstance(link, KubeLink)
    return link


async def _ask_api(link: Link, command: Command) -> Completed:
    from tunnelkit.link.kube.api_error import said

    method, path = command.argv
    answer = await _kube(link).request(method, path, command.stdin)
    if 200 <= answer.status < 300:
        return Completed(0, answer.body, b"")
    return Completed(answer.status, b"", said(answer.body).encode())


async def _diagnose(link: Link, settings: Settings, named: str | None) -> Diagnosis:
    from tunnelkit.session.job.pod_diagnosis import diagnose_pods

    return await diagnose_pods(lambda command: _ask_api(link, command), settings, named)


def _note(scheduler: Scheduler) -> str:
    from tunnelkit.scheduler.kube.adapter import Kubernetes

    return scheduler.note if isinstance(scheduler, Kubernetes) else ""


async def _leave(to: AgentAddress) -> None:
    await _pod_agent(to).clean()


def _checks() -> tuple[Check, ...]:
    from tunnelkit.session.doctor.kube_checks import KUBE_CHECKS  # only `tk doctor` needs them

    return KUBE_CHECKS


#: An attempt is one request to the API server, and no login.
_MOST_PAUSE_S = 2.0

KUBERNETES = Backend(
    name="kubernetes",
    links=KUBE_LINKS,
    schedulers=(),
    detect=_detect,
    find_scheduler=_find_scheduler,
    routes=_routes,
    serve_words=_serve_words,
    checks=_checks,
    has_login_host=False,
    shared_home=False,
    direct_route="exec",
    most_pause_s=_MOST_PAUSE_S,
    short_names=False,
    forwards=False,
    serves=lambda settings: settings.cluster.is_kubernetes,
    brings_agent=True,
    job_body=_job_body,
    ask_api=_ask_api,
    leave=_leave,
    diagnose=_diagnose,
    note=_note,
)
