"""`tk lab up --kube`: the stand-in in the background, with pods, until `tk lab down`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tunnelkit.errors import TunnelkitError, UsageError
from tunnelkit.lab.kube.stand_in import StandIn
from tunnelkit.lab.layout import TAG, claim_dir, is_ours, resolve_dir
from tunnelkit.lab.processes import ProcessId, end_all, lab_processes

_SUFFIX = "-kube"
_END_S = 3.0
#: A pod alone, and two that belong together by their label.
_ALONE, _GROUP = "ml-dev-env", ("train-0", "train-1")
PODS = (_ALONE, *_GROUP)


def kube_dir(dir: Path | None = None) -> Path:
    """Return the directory of the cluster that belongs to the lab in `dir`."""
    found = resolve_dir(dir)
    return resolve_dir(found.with_name(found.name + _SUFFIX))


def running(dir: Path | None = None) -> StandIn:
    """Return the cluster that belongs to the lab in `dir`. Raises UsageError if there is none."""
    root = kube_dir(dir)
    cluster = StandIn(root)
    # Its default place is in /tmp: another user's kubeconfig could have kubectl run a program.
    if not (is_ours(root) and cluster.kubeconfig.exists() and _processes(root)):
        raise UsageError(f"there is no cluster in {root}", hint="start one: tk lab up --kube")
    return cluster


def phases(dir: Path | None = None) -> dict[str, str]:
    """Return the phase of each of its pods. Raises UsageError if there is no cluster."""
    listed = running(dir).ask("GET", f"/api/v1/namespaces/{StandIn.namespace}/pods")
    items = listed["items"]
    assert isinstance(items, list)
    return {str(pod["metadata"]["name"]): str(pod["status"]["phase"]) for pod in items}


def up(dir: Path | None = None) -> StandIn:
    """Start the cluster with its pods, unless it runs; return it. Raises TunnelkitError."""
    with suppress(UsageError):
        return running(dir)
    root = kube_dir(dir)
    cluster = StandIn(root)
    down(dir)
    claim_dir(root)
    with (root / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tunnelkit.lab.kube", str(root), "--stay"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**os.environ, TAG: str(root)},
            start_new_session=True,
            cwd="/",
        )
    assert process.stdout is not None
    with process.stdout:
        said = process.stdout.readline()
    if said != b"ready\n":
        lines = (root / "log").read_text(errors="replace").strip().splitlines()
        down(dir)
        raise TunnelkitError(
            "the stand-in for an API server did not start",
            cause=lines[-1] if lines else None,
            hint="is this directory on a local disk? name another with --dir",
        )
    cluster.make_pod(_ALONE)
    for name in _GROUP:
        cluster.make_pod(name, app="train")
    return cluster


def down(dir: Path | None = None) -> None:
    """End the cluster and remove its files. Idempotent. Raises TimeoutExpired."""
    root = kube_dir(dir)
    if not is_ours(root):
        return
    end_all(lambda: _processes(root), grace_s=_END_S)
    if (root / "log").exists():
        shutil.rmtree(root, ignore_errors=True)


def _processes(root: Path) -> set[ProcessId]:
    return lab_processes(str(root), ())
