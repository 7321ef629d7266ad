"""The choice of a session's link: the backend that the settings name, else OpenSSH wherever it can
share one connection, else paramiko.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tunnelkit.config.schema import LinkName
from tunnelkit.errors import MissingProgram
from tunnelkit.link.base import Link, Prompter
from tunnelkit.link.options import LinkOptions

if TYPE_CHECKING:
    from tunnelkit.link.openssh.link import OpenSSHLink
    from tunnelkit.link.paramiko_link.link import ParamikoLink


def link_name(wanted: LinkName, ssh: str = "ssh") -> Literal["openssh", "paramiko"]:
    """`wanted`, or what suits this computer: ssh on Windows can't share a connection."""
    if wanted != "auto":
        return wanted
    return "paramiko" if sys.platform == "win32" or shutil.which(ssh) is None else "openssh"


def make_link(
    wanted: LinkName,
    options: LinkOptions,
    *,
    control_dir: Path,
    prompter: Prompter | None = None,
    batch: bool = False,
    attended: Callable[[], bool] = lambda: True,
    notice: Callable[[str], None] | None = None,
) -> Link:
    """A link that is not open yet; see `OpenSSHLink` and `ParamikoLink`. Raises
    MissingProgram if it was asked for OpenSSH and there is none."""
    link = _link_class(wanted, options.ssh)
    return link(
        options,
        control_dir=control_dir,
        prompter=prompter,
        batch=batch,
        attended=attended,
        notice=notice,
    )


def _link_class(wanted: LinkName, ssh: str) -> type[OpenSSHLink] | type[ParamikoLink]:
    if link_name(wanted, ssh) == "paramiko":
        from tunnelkit.link.paramiko_link.link import ParamikoLink  # costs a tenth of a second

        return ParamikoLink
    if shutil.which(ssh) is None:
        raise MissingProgram(
            f"{ssh} is not installed",
            hint="install the OpenSSH client, or use `--link paramiko`",
        )
    from tunnelkit.link.openssh.link import OpenSSHLink

    return OpenSSHLink
