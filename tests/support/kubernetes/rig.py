"""The cluster that $KUBE_RIG names: a directory with programs, certificates, and daemons' pids.

    bin/            kubectl, and what the cluster runs
    pki/admin.conf  a kubeconfig with every right; pki/dev.conf: a plain user
    run/NAME.pid    of etcd, kube-apiserver, kcm, scheduler, containerd and kubelet

It is up already; the tests make namespaces in it, and restart parts of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support import processes
from tests.support.kube_rig import kubectl
from tunnelkit.lab import proxy

_PATIENCE_S = 120.0
#: What a project of OpenShift has: the uids of its pods.
FIRST_UID = 1000650000
_UIDS = {
    "openshift.io/sa.scc.uid-range": f"{FIRST_UID}/10000",
    "openshift.io/sa.scc.supplemental-groups": f"{FIRST_UID}/10000",
    "openshift.io/sa.scc.mcs": "s0:c26,c5",
}


def why_no_rig() -> str | None:
    """Why there is no real cluster here, or None."""
    if "KUBE_RIG" not in os.environ:
        return "KUBE_RIG names no real Kubernetes (CONTRIBUTING.md)"
    return None


@dataclass(frozen=True)
class Member:
    """A namespace, and a user who has the role `edit` there and reaches the API by `network`."""

    rig: Rig
    namespace: str
    root: Path
    context: str = "rig"

    @property
    def kubeconfig(self) -> Path:
        return self.root / "kubeconfig"

    def admin(self, *words: str, stdin: str = "") -> str:
        """Run kubectl in the namespace with every right; its stdout."""
        return self.rig.kubectl("-n", self.namespace, *words, stdin=stdin)

    def make(self, *objects: Mapping[str, Any]) -> None:
        """Make objects as the member, so that admission treats them as the member's."""
        items = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        words = ("--kubeconfig", str(self.kubeconfig), "create", "-f", "-")
        self.rig.kubectl(*words, stdin=json.dumps(items), admin=False)

    def wait_ready(self, *pods: str) -> None:
        """Until these pods run."""
        for pod in pods:
            processes.until(lambda pod=pod: self._is_there(pod), f"pod {pod} is there", _PATIENCE_S)
            limit = f"--timeout={_PATIENCE_S:.0f}s"
            self.admin("wait", f"pod/{pod}", "--for=condition=Ready", limit)

    def _is_there(self, pod: str) -> bool:
        return pod in self.admin("get", "pods", "-o", "name").replace("pod/", "").split()

    def shell(self, pod: str, script: str) -> str:
        """Run a shell script in the pod; its stdout."""
        return self.admin("exec", pod, "--", "sh", "-c", script)


class Rig:
    """A cluster, and a relay on 127.0.0.1 that is the members' network to it."""

    def __init__(self, root: Path, relay: Path) -> None:
        self.root = root
        self._relay = relay
        self._server = json.loads(
            self.kubectl("config", "view", "--raw", "--flatten", "-o", "json")
        )["clusters"][0]["cluster"]["server"]

    @property
    def endpoint(self) -> str:
        """HOST:PORT of the API server."""
        return str(self._server).removeprefix("https://")

    def kubectl(self, *words: str, stdin: str = "", admin: bool = True) -> str:
        config = ("--kubeconfig", str(self.root / "pki" / "admin.conf")) if admin else ()
        argv = [str(self.root / "bin" / "kubectl"), *config, *words]
        done = subprocess.run(argv, input=stdin, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr}"
        return done.stdout

    # -- the network between the members and the API server ---------------

    def network(self, command: str) -> None:
        """Tell the relay: cut, reset, heal, `rtt MS`."""
        proxy.tell(self._relay, command)

    # -- members ----------------------------------------------------------

    @contextlib.contextmanager
    def member(self, port: int, *, enforce: str = "") -> Iterator[Member]:
        """A namespace as OpenShift makes one, and its member; gone afterwards.

        `port` is the relay's; `enforce` a level of PodSecurity.
        """
        name = f"tk-{secrets.token_hex(3)}"
        labels = {"pod-security.kubernetes.io/enforce": enforce} if enforce else {}
        space = {"name": name, "annotations": _UIDS, "labels": labels}
        made = {"apiVersion": "v1", "kind": "Namespace", "metadata": space}
        self.kubectl("create", "-f", "-", stdin=json.dumps(made))
        words = ("create", "rolebinding", "dev-edit", "--clusterrole=edit", "--user=dev")
        try:
            self.kubectl("-n", name, *words)
            can = ("-n", name, "auth", "can-i", "create", "pods", "--as", "dev")
            processes.until(lambda: self._says(*can), "the role is known", _PATIENCE_S)
            self._has_account(name)
            with tempfile.TemporaryDirectory(prefix="tkr", dir="/tmp") as root:
                one = Member(self, name, Path(root))
                self._write_kubeconfig(one, port)
                yield one
        finally:
            self.kubectl("delete", "namespace", name, "--wait=false")
            gone = ("-n", name, "delete", "pods", "--all", "--grace-period=0", "--force")
            self.kubectl(*gone, "--wait=false")

    def _has_account(self, name: str) -> None:
        """A pod can't be made before its namespace has the service account `default`."""
        has = ("-n", name, "get", "serviceaccount", "default")
        processes.until(lambda: self._says(*has), "the service account", _PATIENCE_S)

    def _says(self, *words: str) -> bool:
        with contextlib.suppress(AssertionError):
            return bool(self.kubectl(*words))
        return False

    def _write_kubeconfig(self, member: Member, port: int) -> None:
        words = ("--kubeconfig", str(self.root / "pki" / "dev.conf"), "config", "view")
        shown = self.kubectl(*words, "--raw", "--flatten", "-o", "json", admin=False)
        config = json.loads(shown)
        config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
        context = {"cluster": "rig", "user": "dev", "namespace": member.namespace}
        config["contexts"] = [{"name": member.context, "context": context}]
        member.kubeconfig.touch(0o600)
        member.kubeconfig.write_text(json.dumps(config))

    # -- the cluster's own parts ------------------------------------------

    def restart(self, part: str) -> None:
        """End kube-apiserver or kubelet, and start it as it was started; returns once it serves."""
        pid_file = self.root / "run" / f"{part}.pid"
        pid = int(pid_file.read_text())
        here = Path("/proc", str(pid))
        argv = here.joinpath("cmdline").read_bytes().decode().split("\0")[:-1]
        environ = here.joinpath("environ").read_bytes().decode().split("\0")[:-1]
        network = os.open(here / "ns" / "net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.kill(pid, signal.SIGTERM)
            processes.until(lambda: not processes.is_alive(pid), f"{part} ends", _PATIENCE_S)
            enter = ["nsenter", f"--net=/proc/self/fd/{network}", "--", *argv]
            with (self.root / "log" / f"{part}.log").open("ab") as log:
                new = subprocess.Popen(
                    enter,
                    env=dict(word.split("=", 1) for word in environ if "=" in word),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(network,),
                    start_new_session=True,
                )
        finally:
            os.close(network)
        pid_file.write_text(f"{new.pid}\n")
        self.wait_serves()

    def wait_serves(self) -> None:
        """Until the API server answers and the node is Ready."""
        ready = ("get", "--raw", "/readyz")
        processes.until(lambda: self._says(*ready), "the API server is ready", _PATIENCE_S)
        words = ("wait", "node", "--all", "--for=condition=Ready", "--timeout=120s")
        processes.until(lambda: self._says(*words), "the node is ready", _PATIENCE_S)


@contextlib.contextmanager
def running_rig(port: int) -> Iterator[Rig]:
    """The rig, with a relay to its API server at `port` of 127.0.0.1."""
    root = Path(os.environ["KUBE_RIG"])
    kubectl()
    with tempfile.TemporaryDirectory(prefix="tkn", dir="/tmp") as name:
        control = Path(name, "relay")
        rig = Rig(root, control)
        rig.wait_serves()
        here = ["--listen", f"127.0.0.1:{port}", "--upstream", rig.endpoint]
        argv = [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "tunnelkit.lab.proxy",
            *here,
            "--control",
            str(control),
        ]
        relay = subprocess.Popen(argv, stdin=subprocess.DEVNULL)
        try:
            processes.until(control.exists, "the relay is there")
            yield rig
        finally:
            relay.terminate()
            relay.wait()
