"""The lab's sshds, keys and ssh_configs."""

from __future__ import annotations

import grp
import os
import subprocess
from pathlib import Path

from tunnelkit.errors import MissingProgram, TunnelkitError
from tunnelkit.lab.environment import host_environment, user
from tunnelkit.lab.layout import HOSTS, LOGIN, NODES, Layout, write_private
from tunnelkit.lab.network import Network
from tunnelkit.lab.programs import find_program

_SLOW = "sntrup761x25519-sha512"
_PRIVSEP_DIR = Path("/run/sshd")
_SFTP_SERVERS = (
    "/usr/lib/openssh/sftp-server",
    "/usr/libexec/openssh/sftp-server",
    "/usr/libexec/sftp-server",
    "/usr/lib/ssh/sftp-server",
)


def write_files(layout: Layout, network: Network, *, slurm: bool) -> None:
    """Make the keys and write every configuration file. Raises MissingProgram, TunnelkitError."""
    public = {name: _make_key(layout.ssh / name) for name in ("laptop", "cluster")}
    # The laptop's key opens all doors; the cluster's own one leads from host to host.
    write_private(layout.ssh / "authorized_keys", "\n".join(public.values()) + "\n")
    host_keys = {host: _make_key(layout.ssh / f"host_{host}") for host in HOSTS}

    doors = {host: (network.address[host], network.ssh_port[host]) for host in HOSTS}
    outside = doors | {LOGIN: network.proxy}
    for name, ways in (("known_hosts", outside), ("cluster_known_hosts", doors)):
        lines = [f"{_known_as(*ways[host])} {host_keys[host]}\n" for host in HOSTS]
        write_private(layout.ssh / name, "".join(lines))
    write_private(layout.ssh_config, _laptop_config(layout, outside))
    write_private(layout.ssh / "login_config", _login_config(layout, doors))
    kex = "\n".join(quick_kex())
    for host in HOSTS:
        text = _sshd_config(layout, network, host, slurm=slurm, kex=kex)
        write_private(layout.ssh / f"sshd_{host}", text)
    _allow_penalties_off(layout)


def sshd_argv(layout: Layout, host: str) -> list[str]:
    """argv of that host's sshd, in the foreground, its log on stderr."""
    return [find_program("sshd"), "-D", "-e", "-f", str(layout.ssh / f"sshd_{host}")]


def quick_kex() -> list[str]:
    """Return lines of an sshd_config for connections that never leave this machine.

    sntrup761, OpenSSH's first choice before 9.9, takes 65 ms of CPU for each. Later versions choose
    a quick one, and would warn of any other."""
    try:
        known = subprocess.run(
            [find_program("ssh"), "-Q", "kex"], capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    kinds = known.stdout.split()
    if "mlkem768x25519-sha256" in kinds or not any(kind.startswith(_SLOW) for kind in kinds):
        return []
    return [f"KexAlgorithms -{_SLOW}*"]  # the others stay: paramiko has fewer than OpenSSH


def make_privsep_dir() -> bool:
    """Root's sshd insists on /run/sshd. Make it if it isn't there; tell whether we did."""
    if os.geteuid() != 0 or _PRIVSEP_DIR.exists():
        return False
    _PRIVSEP_DIR.mkdir(mode=0o755)
    return True


def remove_privsep_dir() -> None:
    """Remove /run/sshd unless some other sshd lives, which would need it for its next login."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if (entry / "comm").read_text(encoding="utf-8").strip() == "sshd":
                    return
            except OSError:
                continue
    try:
        _PRIVSEP_DIR.rmdir()
    except OSError:
        pass


def has_terminals() -> bool:
    """True if the lab's sshds can give out terminals.

    sshd insists on the group tty; an ordinary user's sshd can do that only if devpts does it by
    itself (gid=5, as Debian mounts it)."""
    if os.geteuid() == 0:
        return True
    try:
        wanted = grp.getgrnam("tty").gr_gid
    except KeyError:
        return True
    master, slave = os.openpty()
    try:
        return os.fstat(slave).st_gid == wanted
    finally:
        os.close(master)
        os.close(slave)


def _make_key(path: Path) -> str:
    """Make an ed25519 key without passphrase; return type and public key."""
    done = subprocess.run(
        [find_program("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise TunnelkitError(
            "the lab's ssh keys can't be made",
            cause=done.stderr.strip(),
            hint="is there room in that directory?",
        )
    return " ".join(path.with_suffix(".pub").read_text(encoding="utf-8").split()[:2])


def _known_as(address: str, port: int) -> str:
    return address if port == 22 else f"[{address}]:{port}"


def _common_client_options(layout: Layout, key: str, known_hosts: str) -> str:
    return f"""Host {" ".join(HOSTS)}
  User {user().pw_name}
  IdentityFile {layout.ssh / key}
  IdentitiesOnly yes
  IdentityAgent none
  UserKnownHostsFile {layout.ssh / known_hosts}
  GlobalKnownHostsFile none
  StrictHostKeyChecking yes
"""


def _host_blocks(ways: dict[str, tuple[str, int]], jump: str) -> str:
    text = ""
    for host, (address, port) in ways.items():
        text += f"Host {host}\n  HostName {address}\n  Port {port}\n"
        if host in NODES:
            text += jump
        text += "\n"
    return text


def _laptop_config(layout: Layout, ways: dict[str, tuple[str, int]]) -> str:
    return (
        f"# Use: ssh -F {layout.ssh_config} node1. Nodes are reached only through login.\n"
        + _host_blocks(ways, f"  ProxyJump {LOGIN}\n")
        + _common_client_options(layout, "laptop", "known_hosts")
    )


def _login_config(layout: Layout, ways: dict[str, tuple[str, int]]) -> str:
    return (
        "# What `ssh` reads on the lab's own hosts: each reaches the others directly.\n"
        + _host_blocks(ways, "")
        + _common_client_options(layout, "cluster", "cluster_known_hosts")
    )


def _sftp_server() -> str:
    for path in _SFTP_SERVERS:
        if os.access(path, os.X_OK):
            return path
    raise MissingProgram(
        "the lab needs sftp-server, which is not installed",
        hint="apt-get install openssh-sftp-server",
    )


def _sshd_config(layout: Layout, network: Network, host: str, *, slurm: bool, kex: str) -> str:
    listen = [(network.address[host], network.ssh_port[host])]
    if host == LOGIN and network.namespaces:
        listen.append(("127.0.0.1", network.ssh_port[host]))  # for the proxy, which has 22 outside
    addresses = "\n".join(f"ListenAddress {address}:{port}" for address, port in listen)
    environment = " ".join(
        f'"{key}={value}"' for key, value in host_environment(layout, host, slurm=slurm).items()
    )
    return f"""# sshd of the lab's {host}
{addresses}
{kex}
HostKey {layout.ssh / f"host_{host}"}
LogLevel VERBOSE
PidFile none
AuthorizedKeysFile {layout.ssh / "authorized_keys"}
AllowUsers {user().pw_name}
PermitRootLogin prohibit-password
AuthenticationMethods publickey
PasswordAuthentication no
KbdInteractiveAuthentication no
StrictModes no
UsePAM {"yes" if _is_locked_root() else "no"}
UseDNS no
PrintMotd no
PrintLastLog no
X11Forwarding no
AllowAgentForwarding no
AllowTcpForwarding yes
AllowStreamLocalForwarding yes
GatewayPorts no
MaxSessions 10
MaxStartups 200:30:400
AcceptEnv LANG LC_*
SetEnv {environment}
ForceCommand {layout.bin / "tk-lab-session"}
Subsystem sftp {_sftp_server()}
"""


def _is_locked_root() -> bool:
    """Root's sshd without PAM refuses an account whose password is locked; PAM lets keys in."""
    if os.geteuid() != 0:
        return False
    try:
        lines = Path("/etc/shadow").read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
    return any(line.startswith(f"{user().pw_name}:!") for line in lines)


def _allow_penalties_off(layout: Layout) -> None:
    """OpenSSH 9.8 and later lock out an address after failed logins: here that is everyone,
    since all of the lab's laptop comes from one address. Older ones don't know the option."""
    option = "PerSourcePenalties no"
    config = layout.ssh / f"sshd_{LOGIN}"
    argv = [find_program("sshd"), "-t", "-f", str(config), "-o", option]
    if subprocess.run(argv, capture_output=True, check=False).returncode:
        return
    for host in HOSTS:
        path = layout.ssh / f"sshd_{host}"
        write_private(path, path.read_text(encoding="utf-8") + option + "\n")
