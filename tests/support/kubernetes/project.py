"""A project in a namespace of a real cluster, used through the real `tk`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.kube_rig import KubeProject
from tests.support.kubernetes.rig import Member

#: The directory that the images of the rig begin in; anybody may write there.
WORK = "/workspace"
#: A pod that is there before tk, see the fixture `ml_dev_env`.
POD = "ml-dev-env"


class RigProject(KubeProject):
    """Its node is a pod of the member's namespace, and its files lie in that pod's WORK."""

    def __init__(self, member: Member, base: Path) -> None:
        self.member = member
        self._programs = member.rig.root / "bin"
        self._program = "kubectl"
        super().__init__(member, base, remote=WORK)

    def environ(self) -> dict[str, str]:
        config = {"KUBECONFIG": str(self.member.kubeconfig), "KUBECACHEDIR": str(self.base / "k")}
        path = f"{self._programs}:{os.environ.get('PATH', '')}"
        return {**super().environ(), **config, "PATH": path}

    def kubectl(self) -> str:
        return str(self._programs / self._program)

    def use(self, program: str) -> None:
        """Go by `kubectl` or `oc`."""
        self._program = program
        self.configure()

    async def up(self, *args: str) -> dict[str, Any]:
        status: dict[str, Any] = (await self.tk("up", *args, "--json")).json
        return status

    def remote(self, name: str = "") -> Path:
        """In the pod."""
        return Path(WORK, name)

    def text(self, pod: str, name: str) -> str:
        """A file of the project in the pod."""
        return self.member.admin("exec", pod, "--", "cat", str(self.remote(name)))

    def set_up_by_init(self, *words: str) -> None:
        """`tk init --kube`, as a user would, in the place of the test's own tunnelkit.toml."""
        (self.dir / "tunnelkit.toml").unlink()
        tk = str(Path(sys.executable).parent / "tk")
        argv = [tk, "init", "--kube", *words]
        subprocess.run(argv, cwd=self.dir, env=self.env, check=True, capture_output=True)


def pod(name: str, image: str = "python", **labels: str) -> dict[str, Any]:
    """A pod of an image of the rig."""
    metadata = {"name": name, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": _spec(image)}


def stateful_set(name: str, replicas: int) -> dict[str, Any]:
    """A StatefulSet whose pods are made at once."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": _spec("python")}
    spec: dict[str, Any] = {
        "serviceName": name,
        "replicas": replicas,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": labels},
        "template": template,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name},
        "spec": spec,
    }


def _spec(image: str) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": f"docker.io/tk/{image}:1",
        "imagePullPolicy": "Never",
    }
    return {"terminationGracePeriodSeconds": 2, "containers": [container]}
