"""The kubeconfig of the stand-in: one context, with a token."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

CONTEXT = "standin"


def write_kubeconfig(path: Path, port: int, token: str, namespace: str, certificate: str) -> None:
    """Write it, 0600. It is JSON, which is YAML, too."""
    cluster = {
        "server": f"https://127.0.0.1:{port}",
        "certificate-authority-data": base64.b64encode(certificate.encode()).decode(),
    }
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": CONTEXT, "cluster": cluster}],
        "users": [{"name": "me", "user": {"token": token}}],
        "contexts": [
            {
                "name": CONTEXT,
                "context": {"cluster": CONTEXT, "user": "me", "namespace": namespace},
            }
        ],
        "current-context": CONTEXT,
    }
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w") as file:
        json.dump(config, file)
