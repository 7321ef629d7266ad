"""The programs that the lab is made of, and the Debian packages they come in."""

from __future__ import annotations

import os
import shutil
import sys

from tunnelkit.errors import MissingProgram

_PACKAGE = {
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "sshd": "openssh-server",
    "munged": "munge",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sbatch": "slurm-client",
    "sinfo": "slurm-client",
    "squeue": "slurm-client",
    "scancel": "slurm-client",
    "scontrol": "slurm-client",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
}
SLURM_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "sinfo", "squeue", "scancel")

# Daemons live in sbin, which an ordinary user's PATH often lacks.
_SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")


def find_program(name: str) -> str:
    """Absolute path of a program. Raises MissingProgram naming its Debian package."""
    found = _which(name)
    if found is None:
        package = _PACKAGE.get(name, name)
        raise MissingProgram(
            f"the lab needs {name}, which is not installed",
            hint=f"apt-get install {package}",
        )
    return found


def missing(names: tuple[str, ...]) -> list[str]:
    """Those of `names` that are not installed."""
    return [name for name in names if _which(name) is None]


def packages(names: list[str]) -> list[str]:
    """The Debian packages of those programs."""
    return sorted({_PACKAGE.get(name, name) for name in names})


def _which(name: str) -> str | None:
    return shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", os.defpath), *_SBIN)))


def own_program(module: str) -> list[str]:
    """argv that runs a module of the lab's as a program."""
    return [sys.executable, "-P", "-W", "ignore::RuntimeWarning:runpy", "-m", module]
