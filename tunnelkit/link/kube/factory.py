"""The kinds of link to pods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunnelkit.config.schema import Settings
from tunnelkit.errors import ConfigError
from tunnelkit.link.base import Link, LinkKind, LinkSetup

if TYPE_CHECKING:
    from tunnelkit.link.kube.target import KubeTarget


def target_of(settings: Settings) -> KubeTarget:
    """Return the cluster that the settings name. Raises ConfigError."""
    from tunnelkit.link.kube.target import KubeTarget

    cluster = settings.cluster
    settings.require_cluster()
    if cluster.context is None or cluster.namespace is None:
        raise ConfigError("no context is configured", hint="run `tk init --kube`")
    return KubeTarget(cluster.context, cluster.namespace, cluster.kubectl, cluster.container)


def _by_proxy(settings: Settings, setup: LinkSetup) -> Link:
    from tunnelkit.link.kube.link import ProxyLink  # sessions by ssh need none of it

    may_exec = settings.cluster.link == "auto"
    return ProxyLink(target_of(settings), setup.control_dir, may_exec=may_exec)


def _by_exec(settings: Settings, setup: LinkSetup) -> Link:
    from tunnelkit.link.kube.link import KubectlExecLink

    return KubectlExecLink(target_of(settings), setup.control_dir)


KUBE_LINKS = (LinkKind("kubectl-proxy", _by_proxy), LinkKind("kubectl-exec", _by_exec))
