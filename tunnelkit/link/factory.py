"""The kinds of ssh link: OpenSSH wherever it can share one connection, else paramiko."""

from __future__ import annotations

import shutil
import sys
from typing import Literal

from tunnelkit.config.schema import LinkName, Settings
from tunnelkit.errors import MissingProgram
from tunnelkit.link.base import Link, LinkKind, LinkSetup
from tunnelkit.link.options import LinkOptions, link_options


def link_name(wanted: LinkName, ssh: str = "ssh") -> Literal["openssh", "paramiko"]:
    """Return `wanted`, or for "auto" what suits this computer.

    ssh on Windows can't share a connection."""
    if wanted in ("openssh", "paramiko"):
        return wanted
    return "paramiko" if sys.platform == "win32" or shutil.which(ssh) is None else "openssh"


def make_link(wanted: LinkName, options: LinkOptions, setup: LinkSetup) -> Link:
    """Return an ssh link that is not open yet; see `OpenSSHLink` and `ParamikoLink`.

    Raises MissingProgram if OpenSSH is wanted and not installed."""
    if link_name(wanted, options.ssh) == "paramiko":
        from tunnelkit.link.paramiko_link.link import ParamikoLink  # costs a tenth of a second

        return ParamikoLink(
            options,
            control_dir=setup.control_dir,
            prompter=setup.prompter,
            batch=setup.batch,
            attended=setup.attended,
            asks_nodes=setup.asks_nodes,
            notice=setup.notice,
        )
    if shutil.which(options.ssh) is None:
        raise MissingProgram(
            f"{options.ssh} is not installed",
            hint="install the OpenSSH client, or use `--link paramiko`",
        )
    from tunnelkit.link.openssh.link import OpenSSHLink

    return OpenSSHLink(
        options,
        control_dir=setup.control_dir,
        prompter=setup.prompter,
        batch=setup.batch,
        attended=setup.attended,
        asks_nodes=setup.asks_nodes,
        notice=setup.notice,
        patient_logins=setup.patient_logins,
        once=setup.once,
    )


def _openssh(settings: Settings, setup: LinkSetup) -> Link:
    return make_link("openssh", link_options(settings), setup)


def _paramiko(settings: Settings, setup: LinkSetup) -> Link:
    return make_link("paramiko", link_options(settings), setup)


SSH_LINKS = (
    LinkKind("openssh", _openssh, suits=lambda: link_name("auto") == "openssh"),
    LinkKind("paramiko", _paramiko),
)
