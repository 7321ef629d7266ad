"""A kubectl and the stand-in for a Kubernetes cluster, for tests."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tunnelkit.lab.kube.stand_in import StandIn


def kubectl() -> str:
    """The path of a kubectl; skips where there is none. The environment's own comes first."""
    own = str(Path(sys.executable).parent)
    found = shutil.which("kubectl", path=f"{own}:{os.environ.get('PATH', '')}")
    if found is None:
        pytest.skip("kubectl is needed: scripts/setup --tests")
    return found


@contextlib.contextmanager
def running_stand_in() -> Iterator[StandIn]:
    """A stand-in whose kubeconfig is KUBECONFIG; kubectl keeps its cache there, too."""
    kubectl()
    # A short path: sockets lie below it.
    with tempfile.TemporaryDirectory(prefix="tkk", dir="/tmp") as name:
        cluster = StandIn(Path(name))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("KUBECONFIG", str(cluster.kubeconfig))
            patch.setenv("KUBECACHEDIR", str(cluster.root / "cache"))
            try:
                cluster.start()
                yield cluster
            finally:
                cluster.stop()
