"""A stand-in in a process of its own, for tests and the demo."""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from tunnelkit.errors import TunnelkitError
from tunnelkit.lab.kube.api_server import NAMESPACE
from tunnelkit.lab.kube.kubeconfig import CONTEXT
from tunnelkit.lab.kube.wire import Json

_END_S = 10.0


class StandIn:
    """Start it, set KUBECONFIG to `kubeconfig`, and `stop` it. It ends with this process, too."""

    context, namespace = CONTEXT, NAMESPACE

    def __init__(self, root: Path) -> None:
        self.root = root
        self.kubeconfig = root / "kubeconfig"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start, and return once it serves. Raises TunnelkitError."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tunnelkit.lab.kube", str(self.root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != b"ready\n":
            raise TunnelkitError("the stand-in API server did not start", hint="see above")

    def stop(self) -> None:
        """End it with all its pods."""
        if self._process is None:
            return
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._process = None

    def ask(self, method: str, path: str, body: object = None) -> Json:
        """Send a request of the cluster's owner; `/standin/...` changes the cluster itself."""
        config = json.loads(self.kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        known = base64.b64decode(cluster["certificate-authority-data"]).decode()
        context = ssl.create_default_context(cadata=known)
        request = urllib.request.Request(  # noqa: S310 - its own https address
            cluster["server"] + path,
            None if body is None else json.dumps(body).encode(),
            {"Authorization": f"Bearer {config['users'][0]['user']['token']}"},
            method=method,
        )
        opened = urllib.request.urlopen(  # noqa: S310 - its own https address
            request, timeout=_END_S, context=context
        )
        with opened as answer:
            return cast(Json, json.load(answer))

    def make_pod(
        self,
        name: str,
        *,
        image: str = "standin",
        owner: tuple[str, str] | None = None,
        command: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        probe: Json | None = None,
        deadline_s: int | None = None,
        sidecars: Sequence[str] = (),
        **labels: str,
    ) -> Path:
        """Make a pod that sleeps, or runs a command; return its directory.

        owner: kind and name. probe: a livenessProbe, which nobody asks. sidecars: further
        containers, which don't run."""
        owners = [] if owner is None else [{"kind": owner[0], "name": owner[1]}]
        container: Json = {"name": "main", "image": image}
        if command:
            container["command"] = list(command)
        container["env"] = [{"name": key, "value": value} for key, value in (env or {}).items()]
        if probe is not None:
            container["livenessProbe"] = probe
        others: list[object] = [{"name": name, "image": "standin"} for name in sidecars]
        spec: Json = {"containers": [container, *others]}
        if deadline_s is not None:
            spec["activeDeadlineSeconds"] = deadline_s
        pod: Json = {
            "metadata": {"name": name, "labels": labels, "ownerReferences": owners},
            "spec": spec,
        }
        self.ask("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", pod)
        return self.root / "pods" / name

    def remove_pod(self, name: str) -> None:
        """End a pod by force. On return its name is free; a DELETE only begins that."""
        self.ask("POST", "/standin/fail", {"pod": name, "gone": True, "status": {}})
