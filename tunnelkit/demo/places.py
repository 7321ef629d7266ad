"""The demo's throw-away directories: nothing outside of them is read or written."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tunnelkit.errors import TunnelkitError
from tunnelkit.session.runtime.paths import SessionPaths

_USUAL_PORT = 40056
#: Below the base lie Unix sockets, whose paths may hold about 100 bytes.
_BASE_LIMIT_BYTES = 24
_SAMPLE = Path(__file__).parent / "sample"


@dataclass(frozen=True)
class Places:
    """The files of one demo. `port` is for the editor, on this machine. kube: its cluster is a
    stand-in for Kubernetes."""

    base: Path
    port: int
    kube: bool = False

    @staticmethod
    def make(port: int, *, kube: bool = False) -> Places:
        """Fresh directories with the sample project in them. Raises TunnelkitError."""
        parent = tempfile.gettempdir()
        if len(os.fsencode(parent)) > _BASE_LIMIT_BYTES:
            parent = "/tmp"  # noqa: S108 - mkdtemp makes it 0700 under a fresh name
        try:
            base = Path(tempfile.mkdtemp(prefix="tkdemo-", dir=parent))
            places = Places(base, port, kube)
            try:
                places._fill()
            except BaseException:
                places.remove()
                raise
        except OSError as error:
            raise TunnelkitError(
                f"can't make the demo's directory in {parent}",
                cause=error.strerror,
                hint="set TMPDIR to a directory with room",
            ) from None
        return places

    def _fill(self) -> None:
        for path in (self.config, self.state, self.runtime):
            path.mkdir(mode=0o700)
        shutil.copytree(_SAMPLE, self.project, ignore=shutil.ignore_patterns("__pycache__"))

    @property
    def lab(self) -> Path:
        """The directory of the demo's cluster."""
        return self.base / "lab"

    @property
    def project(self) -> Path:
        """The user's project."""
        return self.base / "fit"

    @property
    def program(self) -> Path:
        """The program that is debugged."""
        return self.project / "train.py"

    @property
    def config(self) -> Path:
        """The directory of tk's settings."""
        return self.base / "config"

    @property
    def state(self) -> Path:
        """The directory of tk's state."""
        return self.base / "state"

    @property
    def runtime(self) -> Path:
        """The sessions' sockets and launch files."""
        return self.base / "run"

    @property
    def cache(self) -> Path:
        """The directory of tk's cache."""
        return self.base / "cache"

    @property
    def loop_output(self) -> Path:
        """The output of `tk loop`."""
        return self.base / "loop.txt"

    @property
    def ranks_output(self) -> Path:
        """The output of `tk loop srun`."""
        return self.base / "ranks.txt"

    def variables(self) -> dict[str, str]:
        """The environment of a shell that uses the demo's cluster."""
        found = {
            "TK_CONFIG_DIR": str(self.config),
            "TK_STATE_DIR": str(self.state),
            "TK_RUNTIME_DIR": str(self.runtime),
            "TK_CACHE_DIR": str(self.cache),
            "TK_LAB_DIR": str(self.lab),
        }
        if self.kube:
            found["KUBECONFIG"] = str(self.base / "lab-kube" / "kubeconfig")
            found["KUBECACHEDIR"] = str(self.cache / "kubectl")
        if self.port != _USUAL_PORT:
            found["TK_DEBUG_PORT"] = str(self.port)
        return found

    def environ(self, outer: Mapping[str, str]) -> dict[str, str]:
        """The environment of the demo's programs: `outer` without its own tk and job."""
        kept = {
            name: value for name, value in outer.items() if not name.startswith(("TK_", "SLURM_"))
        }
        if self.kube:
            # A kubectl that came with tk's own environment.
            kept["PATH"] = f"{Path(sys.executable).parent}:{kept.get('PATH', os.defpath)}"
        return kept | self.variables()

    def session(self) -> SessionPaths | None:
        """The session's places, once `tk up` has made them."""
        root = self.runtime / "tk"
        entries = sorted(root.iterdir()) if root.is_dir() else []
        if not entries:
            return None
        return SessionPaths(entries[0].name, entries[0], self.state / entries[0].name)

    def remove(self) -> None:
        """Remove every file."""
        shutil.rmtree(self.base, ignore_errors=True)


def tk_argv() -> list[str]:
    """The `tk` that belongs to this interpreter, also where PATH has another or none."""
    beside = Path(sys.executable).with_name("tk")
    if os.access(beside, os.X_OK):
        return [str(beside)]
    return [sys.executable, "-P", "-c", "from tunnelkit.cli.main import main; main()"]


def shell_lines(places: Places) -> list[str]:
    """The lines to type in a shell to use the demo's cluster."""
    lines = []
    own = tk_argv()[0]
    if shutil.which("tk") != own:
        lines.append(f'export PATH={shlex.quote(str(Path(own).parent))}:"$PATH"')
    words = [f"{name}={shlex.quote(value)}" for name, value in places.variables().items()]
    lines += [f"export {' '.join(words[i : i + 2])}" for i in range(0, len(words), 2)]
    return [*lines, f"cd {shlex.quote(str(places.project))}"]


@contextmanager
def held_port() -> Iterator[int]:
    """The usual editor port, or another if somebody has it, kept free for the demo's session.

    A port that is bound but does not listen is given to nobody who just wants any; those
    who ask for this very one with SO_REUSEADDR, as the session does, may listen on it.
    """
    with socket.socket() as holder:
        try:
            holder.bind(("127.0.0.1", _USUAL_PORT))
        except OSError:
            holder.bind(("127.0.0.1", 0))
        # Only now: at the bind it would not mind another demo's holder.
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        yield int(holder.getsockname()[1])
