"""The place of a link in a Kubernetes cluster, and the URLs and argv that name it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from tunnelkit.errors import ConfigError, UsageError

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
#: Objects that tk makes from a manifest; their pods belong to them.
_OWNERS = "jobs|statefulsets|deployments|jobsets|pytorchjobs|leaderworkersets"
#: The whole argv is in a URL; proxies on the way allow 8 KiB and more for one.
MOST_URL_BYTES = 7000


def check_pod(text: str) -> str:
    """Return `text` if it can be the name of a pod or container; raise UsageError if not."""
    if not _NAME.fullmatch(text):
        raise UsageError(
            f"{text!r} is not the name of a pod",
            hint="names have small letters, digits, '-' and '.'; see `kubectl get pods`",
        )
    return text


@dataclass(frozen=True)
class KubeTarget:
    """The cluster, pinned by name.

    kubectl: the program, kubectl or oc. context: of the user's kubeconfig. container: in each pod;
    None for the pod's default. alive_interval_s: pause between signs of life."""

    context: str
    namespace: str
    kubectl: str = "kubectl"
    container: str | None = None
    alive_interval_s: float = 15.0
    start_timeout_s: float = 20.0

    def __post_init__(self) -> None:
        if not _NAMESPACE.fullmatch(self.namespace):
            raise ConfigError(
                f"{self.namespace!r} is not the name of a namespace",
                hint="set namespace under [cluster]; `kubectl get namespaces` lists them",
            )
        if not self.context or self.context.startswith("-") or not self.context.isprintable():
            raise ConfigError(
                f"{self.context!r} is not the name of a context",
                hint="set context under [cluster]; `kubectl config get-contexts` lists them",
            )

    def __str__(self) -> str:
        return f"{self.context}/{self.namespace}"

    def argv(self, *words: str) -> list[str]:
        """Return kubectl's argv for `words`, in this context and namespace."""
        where = [f"--context={self.context}", f"--namespace={self.namespace}"]
        return [self.kubectl, *where, *words]

    def pod_url(self, pod: str) -> str:
        """Return the path of a pod. Raises UsageError for what is no name."""
        return f"/api/v1/namespaces/{self.namespace}/pods/{check_pod(pod)}"

    def exec_url(
        self, pod: str, argv: Sequence[str], *, stdin: bool = True, container: str = ""
    ) -> str:
        """Return the path of an exec request. Raises UsageError if it is too long for a URL.

        container: of a pod that has several, which the API server must be given; the target's own
            goes before."""
        query = [("command", word) for word in _words(argv)]
        query += [("stdin", "true")] if stdin else []
        query += [("stdout", "true"), ("stderr", "true")]
        if self.container is not None or container:
            query.append(("container", self.container or container))
        url = f"{self.pod_url(pod)}/exec?{urlencode(query, quote_via=quote)}"
        if len(url) > MOST_URL_BYTES:
            raise UsageError(
                f"a command of {len(url)} bytes is too long for a request to the API server",
                hint="what is long goes to its stdin",
            )
        return url

    def exec_argv(self, pod: str, argv: Sequence[str]) -> list[str]:
        """Return the argv of `kubectl exec`."""
        return [*self.exec_words(), check_pod(pod), "--", *_words(argv)]

    def exec_words(self) -> list[str]:
        """Return the argv of `kubectl exec` up to the pod's name."""
        container = [] if self.container is None else [f"--container={self.container}"]
        return self.argv("exec", "--stdin", *container)

    def proxy_argv(self, socket_path: str, *, appends: bool = True) -> list[str]:
        """Return the argv of `kubectl proxy`, which passes on no more than tk needs.

        appends: to the path of the server's URL, which a gateway such as Rancher needs. kubectl
            has that since 1.23."""
        paths = ",".join(
            (
                "^/version$",
                f"^/api/v1/namespaces/{self.namespace}/(pods|events|resourcequotas)(/.*)?$",
                f"^/apis/[a-z0-9.-]+/v[a-z0-9]+/namespaces/{self.namespace}/({_OWNERS})(/[^/]+)?$",
                r"^/apis/authorization\.k8s\.io/v1/selfsubjectaccessreviews$",
                r"^/apis/authentication\.k8s\.io/v1/selfsubjectreviews$",
            )
        )
        # By default it refuses exec, which is what this one is for.
        rules = [f"--accept-paths={paths}", "--reject-paths=^$", "--accept-hosts=^localhost$"]
        if appends:
            rules.append("--append-server-path")
        return self.argv("proxy", f"--unix-socket={socket_path}", *rules)


def _words(argv: Sequence[str]) -> Sequence[str]:
    if not argv:
        raise UsageError("there is no command to run", hint="name one")
    if any("\0" in word for word in argv):
        raise UsageError("a command's words can't hold a NUL byte", hint="leave it out")
    return argv
