"""A host of its own on this machine: network, name, processes, /etc, /var, /tmp.

What it writes below /etc, /var and other directories that are named goes to overlays in the
rig's directory; only the home directory is shared, as by NFS. This machine keeps nothing of it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.openpbs import init
from tests.support.processes import until

# $1 the host's directory, $2 its name, $3 what is to be /home, $4... what it has to itself, --, and
# its first program. Runs inside the new namespaces, before anything else. /run is the host's alone:
# sockets of this machine lie there.
_SETUP = """
set -e
base=$1 home=$3
hostname "$2"
shift 3
while [ "$1" != -- ]; do
  layer=$base/layers$1
  mount -t overlay tk -o "lowerdir=$1,upperdir=$layer/upper,workdir=$layer/work" "$1"
  shift
done
shift
mkdir -p /home
mount --bind "$home" /home
mount -t tmpfs -o mode=755 tk /run
mkdir -p /run/sshd
install -d -o postgres /run/postgresql
mount --bind "$base/tmp" /tmp
ln -s /usr/bin/python3 /usr/local/bin/python
exec "$@"
"""


class Host:
    """One host, from `start` to `stop`. base: a directory of the rig for its files.

    enter: argv prefix that leads into its network. own: directories that only look shared.
    """

    def __init__(
        self, name: str, base: Path, enter: Sequence[str], home: Path, own: Sequence[str]
    ) -> None:
        self.name = name
        self._base = base
        self._enter = tuple(enter)
        self._home = home
        self._own = tuple(own)
        self._unshare: subprocess.Popen[bytes] | None = None
        self._first = 0

    def start(self, files: Mapping[str, str]) -> None:
        """Make it, with these files below /etc and the like; their modes follow their names."""
        for directory in self._own:
            for part in ("upper", "work"):
                (self.layer(directory) / part).mkdir(parents=True, exist_ok=True)
        (self._base / "tmp").mkdir()
        (self._base / "tmp").chmod(0o1777)
        program = self._base / "init.py"
        program.write_text(Path(init.__file__).read_text())
        # The program is read before /tmp, where it may lie, is another.
        source = program.read_text()
        argv = [
            *self._enter, "unshare", "--uts", "--mount", "--ipc", "--pid", "--fork",
            "--kill-child", "--mount-proc", "--propagation", "private", "--",
            "sh", "-c", _SETUP, "sh", str(self._base), self.name, str(self._home),
            *self._own, "--", "/usr/bin/python3", "-c", source,
        ]  # fmt: skip
        log = self._base / "init.log"
        with open(log, "wb") as out:
            self._unshare = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=out, stderr=out, start_new_session=True
            )
        until(lambda: self._is_set_up(log), f"{self.name} is set up")
        for path, text in files.items():
            self.write(path, text)

    def layer(self, directory: str) -> Path:
        """Where what it has to itself of that directory lies."""
        return self._base / "layers" / directory.lstrip("/")

    def _is_set_up(self, log: Path) -> bool:
        assert self._unshare is not None
        assert self._unshare.poll() is None, f"{self.name}: {log.read_text()}"
        pid = self._unshare.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if not children:
            return False
        self._first = int(children[0])
        return Path(f"/proc/{self._first}/cmdline").read_bytes().startswith(b"/usr/bin/python3")

    def stop(self) -> None:
        """End it with all its processes. Idempotent."""
        if self._unshare is not None:
            assert self._unshare.stdin is not None
            self._unshare.stdin.close()
            self._unshare.wait(30)
            self._unshare = None

    def argv(self, *words: str, user: str = "root", login_shell: bool = True) -> list[str]:
        """The argv that runs a program there; a person's has a login shell's environment, or the
        one of a command over ssh."""
        enter = ["nsenter", "-t", str(self._first), "--net", "--uts", "--mount", "--ipc", "--pid"]
        clean = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8"]
        if user == "root":
            return [*enter, "--", *clean, *words]
        script = ". /etc/profile; " if login_shell else ""
        script += 'cd && exec "$@"'
        become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--reset-env"]
        return [*enter, "--", *clean, *become, "sh", "-c", script, "sh", *words]

    def run(self, *words: str, user: str = "root", stdin: str = "", timeout_s: float = 60.0) -> str:
        """Run it there; what it printed. Fails unless it succeeds."""
        done = subprocess.run(
            self.argv(*words, user=user), input=stdin, capture_output=True, text=True,
            timeout=timeout_s,
        )  # fmt: skip
        assert done.returncode == 0, f"{self.name}: {words}: {done.stdout}{done.stderr}"
        return done.stdout

    def write(self, path: str, text: str) -> None:
        """Write a file there, as root; readable for all but keys."""
        secret = "key" in Path(path).name and not path.endswith(".pub")
        script = 'mkdir -p -- "$(dirname -- "$1")" && umask "$2" && cat > "$1"'
        self.run("sh", "-c", script, "sh", path, "077" if secret else "022", stdin=text)
