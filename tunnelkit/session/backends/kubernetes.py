"""The backend of Kubernetes and OpenShift: a node is a pod, and there is no login host."""

from __future__ import annotations

import shlex
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
    from tunnelkit.session.agent.pod_agent import PodAgent
    from tunnelkit.session.doctor.check import Check

#: The settings of ssh clusters, each with the reason why a pod has none of it.
_NOT_HERE = {
    "jump": "kubectl finds its way by the kubeconfig",
    "ssh_config": "there is no ssh in a pod",
}


def choose_pods(settings: Settings, named: str | None, selector: str | None) -> str | None:
    """Return the pods to adopt, as their job id; None to make one, of `[allocation] image`.

    named: POD or TYPE/NAME, selector: of labels; they win over the settings. Raises UsageError."""
    from tunnelkit.scheduler.kube.members import parse_choice

    asked = settings.allocation
    if named is not None and selector is not None:
        raise UsageError("a pod and a label selector", hint="give one of them")
    if selector is not None:
        return parse_choice(f"-l {selector}").written
    if named is not None:
        return parse_choice(named).written
    if settings.origins["allocation.image"].kind == "flag" or asked.pod is None:
        if asked.image is None:
            raise UsageError(
                "which pod? none is named",
                hint="tk up POD adopts one, tk up --image IMAGE makes one; or set `pod` under "
                "[allocation]",
            )
        return None
    return parse_choice(asked.pod).written


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
    from tunnelkit.scheduler.kube.adapter import Kubernetes  # sessions by ssh need none of it
    from tunnelkit.scheduler.kube.pod_spec import PodTemplate

    for key, why in _NOT_HERE.items():
        if getattr(settings.cluster, key):
            raise ConfigError(f"[cluster] {key} means nothing here", cause=why, hint="leave it out")
    image, asked = settings.allocation.image, settings.allocation
    template = None if image is None else PodTemplate(image, asked.gpu_resource)
    namespace = settings.cluster.namespace or ""
    return Kubernetes(namespace, container=settings.cluster.container, template=template)


def _pod_agent(to: AgentAddress) -> PodAgent:
    from tunnelkit.session.agent.pod_agent import PodAgent

    return PodAgent(
        to.link,
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


async def _ask_api(link: Link, command: Command) -> Completed:
    from tunnelkit.link.kube.api_error import said
    from tunnelkit.link.kube.link import KubeLink

    assert isinstance(link, KubeLink)
    method, path = command.argv
    answer = await link.request(method, path, command.stdin)
    if 200 <= answer.status < 300:
        return Completed(0, answer.body, b"")
    return Completed(answer.status, b"", said(answer.body).encode())


async def _leave(to: AgentAddress) -> None:
    await _pod_agent(to).clean()


def _checks() -> tuple[Check, ...]:
    from tunnelkit.session.doctor.kube_checks import KUBE_CHECKS  # only `tk doctor` needs them

    return KUBE_CHECKS


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
    forwards=False,
    serves=lambda settings: settings.cluster.is_kubernetes,
    brings_agent=True,
    job_body=_job_body,
    ask_api=_ask_api,
    leave=_leave,
)
