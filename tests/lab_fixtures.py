"""The lab as fixtures for the whole suite: one loopback lab and one netns lab a session."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.places import short_dir
from tunnelkit import lab as tk_lab
from tunnelkit.errors import TunnelkitError
from tunnelkit.lab import LabInfo
from tunnelkit.lab.programs import missing


@contextmanager
def running_lab(**options: object) -> Iterator[LabInfo]:
    """A lab of one's own, in fresh directories that are gone afterwards.

    Not below tmp_path, whose length leaves no room for Unix sockets.
    """
    base = short_dir("l")
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TK_CONFIG_DIR", str(base / "config"))
            try:
                info = tk_lab.up(base / "lab", **options)  # type: ignore[arg-type]
            except TunnelkitError as error:
                error.add_note(error.one_line())  # a report would show the message alone
                raise
        try:
            yield info
        finally:
            tk_lab.down(info.dir)
    finally:
        shutil.rmtree(base)


def lab_environ(info: LabInfo) -> dict[str, str]:
    """The environment in which `tk` uses that lab, as `tk lab env` would make it."""
    return {
        **os.environ,
        "TK_CONFIG_DIR": str(info.profile.parents[1]),
        "TK_PROFILE": "lab",
        "TK_LAB_DIR": str(info.dir),
        "TK_LAB_SSH_CONFIG": str(info.ssh_config),
    }


def ssh_argv(info: LabInfo, host: str, *options: str) -> list[str]:
    """argv of ssh from the lab's laptop to `host`; the remote command is to be appended."""
    words = ["-F", str(info.ssh_config), "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"]
    return [*info.enter, "ssh", *options, *words, "--", host]


def ssh(info: LabInfo, host: str, command: str) -> str:
    """Run a shell command on one of the lab's hosts; return what it printed."""
    done = subprocess.run(
        [*ssh_argv(info, host), command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def why_no_lab(*, netns: bool = False) -> str | None:
    """Why this machine can't run a lab, or None if it can."""
    if lacking := missing(("sshd", "ssh", "ssh-keygen")):
        return f"not installed: {', '.join(lacking)}"
    if not netns:
        return None
    if os.geteuid() != 0:
        return "network namespaces need root"
    if missing(("ip", "nsenter", "unshare")):
        return "iproute2 or util-linux is not installed"
    probe = ["unshare", "--net", "--uts", "--mount", "true"]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        return "this root may not make namespaces (a container without CAP_SYS_ADMIN)"
    return None


@pytest.fixture(scope="session")
def lab() -> Iterator[LabInfo]:
    """A loopback lab, shared by the whole session: leave it as you found it."""
    if reason := why_no_lab():
        pytest.skip(reason)
    with running_lab() as info:
        yield info


@pytest.fixture(scope="session")
def netns_lab() -> Iterator[LabInfo]:
    """A netns lab, shared by the whole session; mark tests that use it with `root`."""
    if reason := why_no_lab(netns=True):
        pytest.skip(reason)
    with running_lab(flavour="netns") as info:
        yield info


@pytest.fixture
def slurm_lab(lab: LabInfo) -> LabInfo:
    """The shared loopback lab where it has a Slurm; skips where Slurm isn't installed."""
    if lab.scheduler != "slurm":
        pytest.skip("Slurm is not installed")
    return lab


@pytest.fixture
def healed(lab: LabInfo) -> Iterator[LabInfo]:
    """The shared loopback lab for a test of faults: its link is whole again afterwards."""
    yield lab
    tk_lab.heal(lab.dir)
    tk_lab.set_rtt(0, lab.dir)
