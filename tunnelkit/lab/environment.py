"""The environment, home and wrappers of processes on the lab's hosts."""

from __future__ import annotations

import os
import pwd
import shlex
import sys
from pathlib import Path

import tunnelkit
from tunnelkit.lab.layout import TAG, Layout, write_private
from tunnelkit.lab.programs import find_program

_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"


def user() -> pwd.struct_passwd:
    """Return the account that the whole lab runs as."""
    return pwd.getpwuid(os.getuid())


def host_environment(layout: Layout, host: str, *, slurm: bool) -> dict[str, str]:
    """Return the whole environment of a session or job on `host`.

    Nothing of this process's environment is passed on. PATH has this interpreter, so that `python`
    there has debugpy.
    """
    env = {
        "HOME": str(layout.home),
        "PATH": f"{layout.bin}:{Path(sys.executable).parent}:{_SYSTEM_PATH}",
        "TMPDIR": str(layout.tmp(host)),
        TAG: str(layout.dir),
        "TK_LAB_HOST": host,
    }
    if slurm:
        env["SLURM_CONF"] = str(layout.slurm_conf)
    return env


def daemon_environment(layout: Layout, host: str, *, slurm: bool) -> dict[str, str]:
    """Return a daemon's environment: the host's, and the variables that a login sets."""
    account = user()
    return host_environment(layout, host, slurm=slurm) | {
        "USER": account.pw_name,
        "LOGNAME": account.pw_name,
        "SHELL": account.pw_shell or "/bin/sh",
        "LC_ALL": "C.UTF-8",
    }


def own_program_environment(layout: Layout, host: str) -> dict[str, str]:
    """Return the environment of supervisor and proxy, which import this tunnelkit."""
    paths = [str(Path(tunnelkit.__file__).resolve().parent.parent)]
    if inherited := os.environ.get("PYTHONPATH"):
        paths.append(inherited)
    python_path = os.pathsep.join(paths)
    return daemon_environment(layout, host, slurm=False) | {"PYTHONPATH": python_path}


def write_home(layout: Layout) -> None:
    """Write the wrappers in the lab's bin and the dot files of its home."""
    path = f'"{layout.bin}:{Path(sys.executable).parent}:$PATH"'
    # /etc/profile sets PATH again in login shells.
    write_private(
        layout.home / ".profile", f'PATH={path}\nexport PATH\n[ -z "$BASH" ] || . ~/.bashrc\n'
    )
    write_private(layout.home / ".bashrc", "PS1='\\u@${TK_LAB_HOST:-lab}:\\w\\$ '\n")
    config = shlex.quote(str(layout.ssh / "login_config"))
    ssh = shlex.quote(find_program("ssh"))
    _write_script(layout.bin / "ssh", f'exec {ssh} -F {config} "$@"\n')
    _write_script(layout.bin / "tk-lab-session", _SESSION)


# sshd changes to the home directory of the passwd database, whatever HOME says; sftp, rsync and
# commands with relative paths must start in the lab's home instead.
_SESSION = """cd "$HOME" || exit 1
shell=${SHELL:-/bin/sh}
if [ -n "$SSH_ORIGINAL_COMMAND" ]; then
  command=$SSH_ORIGINAL_COMMAND
  unset SSH_ORIGINAL_COMMAND
  exec "$shell" -c "$command"
fi
exec "$shell" -l
"""


def _write_script(path: Path, body: str) -> None:
    write_private(path, f"#!/bin/sh\n{body}", mode=0o700)
