"""A pod of a real cluster ($KUBE_RIG), a project that is mirrored into it, and kubectl by hand."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchlib.rig import DIR_VARIABLE, BenchProject, free_port, wait_until
from tests.support.kubernetes import Member, running_rig, why_no_rig
from tests.support.kubernetes.project import WORK, pod

POD = "ml-dev-env"
#: Where the copies by hand go.
BY_HAND = "/workspace/by-hand"


class PodRig(BenchProject):
    """One project, mirrored into the pod's WORK, as a member of a namespace. Made by `pod_rig`."""

    def __init__(self, base: Path, member: Member) -> None:
        self.member = member
        self.remote_project = Path(WORK, "project")
        self._programs = member.rig.root / "bin"
        environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("TK_")},
            "HOME": str(base),
            "KUBECONFIG": str(member.kubeconfig),
            "PATH": f"{self._programs}:{os.environ.get('PATH', '')}",
            "TK_CONFIG_DIR": str(base / "config"),
            "TK_STATE_DIR": str(base / "state"),
            "TK_RUNTIME_DIR": str(base),
        }
        super().__init__(base / "project", environ)
        self.project.mkdir()
        where = f'[cluster]\ncontext = "{member.context}"\nnamespace = "{member.namespace}"\n'
        mirror = f'[mirror]\nremote = "{self.remote_project}"\n'
        text = f"{where}{mirror}[debug]\nport = {self.debug_port}\n"
        (self.project / "tunnelkit.toml").write_text(text)
        # A pulled file would belong to the mirror, which deletes it in the pod with the local one.
        (self.project / ".tkignore").write_text("out/\n")
        self.tk("trust", "--yes")

    def kubectl(self, *words: str) -> list[str]:
        """argv of the member's own kubectl."""
        return [str(self._programs / "kubectl"), *words]

    def by_hand(self, *words: str, stdin: bytes | None = None) -> bytes:
        """Run the member's own kubectl to its end; its stdout. Raises RuntimeError."""
        argv = self.kubectl(*words)
        done = subprocess.run(
            argv, env=self.environ, input=stdin or b"", capture_output=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(argv)}: {done.stderr.decode().strip()}")
        return done.stdout

    @contextmanager
    def session(self, *words: str) -> Iterator[None]:
        """`tk up`, and down afterwards."""
        self.tk("up", *(words or (POD,)))
        try:
            yield
        finally:
            self.tk("down")

    def inside(self, path: str | Path) -> Path:
        """A path of the pod as this machine sees it."""
        return Path(f"/proc/{self.pid}/root{path}")

    @property
    def pid(self) -> int:
        """The pod's first process, on this machine."""
        return pid_in(POD)

    def rtt(self, milliseconds: float) -> None:
        """Set the time that a round trip to the API server takes."""
        self.member.rig.network(f"rtt {milliseconds:g}")


def pid_in(name: str) -> int:
    """The pid of the first program of a pod's container, which sleeps. Raises RuntimeError."""
    mark = f"HOSTNAME={name}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            is_first = (entry / "cmdline").read_bytes().startswith(b"sleep\0")
            if is_first and mark in (entry / "environ").read_bytes().split(b"\0"):
                return int(entry.name)
    raise RuntimeError(f"no process of pod {name}")


@contextmanager
def pod_rig() -> Iterator[PodRig]:
    """A namespace with one pod; gone afterwards. Raises RuntimeError where there is no cluster."""
    if reason := why_no_rig():
        raise RuntimeError(reason)
    port = free_port()
    base = Path(tempfile.mkdtemp(prefix="tkb", dir=os.environ[DIR_VARIABLE]))
    try:
        with running_rig(port) as rig, rig.member(port) as member:
            member.make(pod(POD))
            member.wait_ready(POD)
            made = PodRig(base, member)
            made.by_hand("exec", POD, "--", "mkdir", "-p", BY_HAND)
            wait_until(lambda: pid_in(POD), "the pod's process")
            yield made
    finally:
        shutil.rmtree(base, ignore_errors=True)
