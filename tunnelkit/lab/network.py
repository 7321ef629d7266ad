"""Addresses and ports of the lab, and how to run a program on one of its hosts.

Two flavours. `loopback`: every host is an address of 127.0.0.0/8; nothing stops
the laptop from dialling a node, the ssh_config merely doesn't. `netns`: every host
is a network namespace, and the laptop truly reaches nothing but login:

    laptop 10.213.1.2 ── 10.213.1.1 login 10.213.2.1 ──┬── 10.213.2.11 node1
                                                bridge └── 10.213.2.12 node2

Both ends of each veth pair are born inside namespaces: this machine's own
namespace gets no interface, address or route.
"""

from __future__ import annotations

import hashlib
import os
import random
import socket
import subprocess
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tunnelkit.errors import TunnelkitError, UsageError
from tunnelkit.lab.layout import HOSTS, LOGIN, NODES
from tunnelkit.lab.programs import find_program

_LAPTOP_ADDRESS = "10.213.1.2"
_LOGIN_OUTSIDE = "10.213.1.1"
_INSIDE = {LOGIN: "10.213.2.1", "node1": "10.213.2.11", "node2": "10.213.2.12"}
_LOOPBACK = {LOGIN: "127.0.0.1", "node1": "127.0.1.1", "node2": "127.0.1.2"}


@dataclass(frozen=True)
class Network:
    """Addresses and ports of a lab.

    address: each host's own, as the other hosts know it. ssh_port: of each host's sshd.
    proxy: what the laptop dials instead of login's sshd. slurm_address, slurm_port: of slurmctld
    (`login`) and each slurmd. slurm_bound: Slurm listens on slurm_address only.
    namespaces: by host and `laptop`, empty on loopback. own_names: each host has its own host
    name (a UTS namespace) and an /etc/hosts that knows the others. offline: this machine has no
    address but loopback ones.
    """

    address: dict[str, str]
    ssh_port: dict[str, int]
    proxy: tuple[str, int]
    slurm_address: dict[str, str]
    slurm_port: dict[str, int]
    slurm_bound: bool
    namespaces: dict[str, str]
    own_names: bool
    offline: bool = False

    def to_json(self) -> dict[str, object]:
        """Return the fields as JSON types, for `from_json`."""
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> Network:
        """Rebuild the object from `to_json`. Raises KeyError if a field is missing."""
        return Network(**{**data, "proxy": tuple(data["proxy"])})

    def enter_namespace(self, host: str) -> tuple[str, ...]:
        """argv prefix that runs a program in that host's network; empty on loopback.

        nsenter rather than `ip netns exec`, which remounts /sys and so hides the cgroups that
        slurmd wants to see.
        """
        if host not in self.namespaces:
            return ()
        return (find_program("nsenter"), f"--net=/run/netns/{self.namespaces[host]}", "--")

    def enter(self, host: str, hosts_file: Path) -> tuple[str, ...]:
        """argv prefix that runs a program as on that host: its network, host name and hosts."""
        prefix = self.enter_namespace(host)
        if not self.own_names:
            return prefix
        # Words arrive as "$0" and "$@": nothing is pasted into the script.
        script = 'hostname "$0" && mount --bind "$1" /etc/hosts && shift && exec "$@"'
        unshare = (find_program("unshare"), "--uts", "--mount", "--propagation", "slave", "--")
        return (*prefix, *unshare, "/bin/sh", "-c", script, host, str(hosts_file))

    def hosts_text(self) -> str:
        """The /etc/hosts of the lab's hosts."""
        lines = [f"{self.slurm_address[host]} {host}" for host in HOSTS]
        if not self.namespaces:
            # The machine's own names keep working; the lab's come first and so win.
            lines.append(Path("/etc/hosts").read_text(encoding="utf-8", errors="replace"))
        else:
            lines.append("127.0.0.1 localhost")
        return "\n".join(lines) + "\n"


def loopback() -> Network:
    """Plan a network on this machine's loopback, on ports that are free now."""
    own_names = _may_unshare()
    # All of Slurm on one address: srun listens on that of its host's name, and what comes from
    # any loopback address comes from 127.0.0.1, so that is where its steps call back.
    slurm_address = dict.fromkeys(HOSTS, "127.0.0.1")
    bound = own_names or _own_name_is_loopback()
    with ExitStack() as held:
        ssh_port = {host: _free_port(_LOOPBACK[host], held) for host in HOSTS}
        proxy = (_LOOPBACK[LOGIN], _free_port(_LOOPBACK[LOGIN], held))
        # Where Slurm listens on every address, the port has to be free on every address.
        slurm_port = {
            host: _free_port(slurm_address[host] if bound else "0.0.0.0", held)  # noqa: S104
            for host in HOSTS
        }
    return Network(
        address=dict(_LOOPBACK),
        ssh_port=ssh_port,
        proxy=proxy,
        slurm_address=slurm_address,
        slurm_port=slurm_port,
        slurm_bound=bound,
        namespaces={},
        own_names=own_names,
        offline=_is_offline(),
    )


def netns(lab_dir: Path) -> Network:
    """Plan a network of namespaces, named after the lab's directory. Needs root."""
    if os.geteuid() != 0:
        raise UsageError(
            "the netns flavour needs root",
            cause="network namespaces are made by root",
            hint="run it as root, or leave --netns out: the loopback lab needs no rights",
        )
    if not _may_unshare():
        raise UsageError(
            "this root may not make namespaces",
            cause="CAP_SYS_ADMIN is missing, as in most containers",
            hint="leave --netns out, or give the container --privileged",
        )
    tag = hashlib.sha256(os.fsencode(lab_dir)).hexdigest()[:8]
    return Network(
        address=dict(_INSIDE),
        ssh_port=dict.fromkeys(HOSTS, 22),
        proxy=(_LOGIN_OUTSIDE, 22),
        slurm_address=dict(_INSIDE),
        slurm_port={LOGIN: 6817, **dict.fromkeys(NODES, 6818)},
        slurm_bound=True,
        namespaces={host: f"tk{tag}-{host}" for host in ("laptop", *HOSTS)},
        own_names=True,
    )


def make_namespaces(network: Network) -> None:
    """Make the namespaces and the wires between them. Raises TunnelkitError with ip's words."""
    names = network.namespaces
    laptop, login = names["laptop"], names[LOGIN]
    for name in names.values():
        _ip("netns", "add", name)
        _ip("-n", name, "link", "set", "lo", "up")
    _ip("-n", laptop, "link", "add", "eth0", "type", "veth", "peer", "laptop", "netns", login)
    _ip("-n", laptop, "addr", "add", f"{_LAPTOP_ADDRESS}/30", "dev", "eth0")
    _ip("-n", login, "addr", "add", f"{_LOGIN_OUTSIDE}/30", "dev", "laptop")
    _ip("-n", login, "link", "add", "name", "cluster", "type", "bridge")
    _ip("-n", login, "addr", "add", f"{_INSIDE[LOGIN]}/24", "dev", "cluster")
    for node in NODES:
        ns = names[node]
        _ip("-n", ns, "link", "add", "eth0", "type", "veth", "peer", node, "netns", login)
        _ip("-n", login, "link", "set", node, "master", "cluster", "up")
        _ip("-n", ns, "addr", "add", f"{_INSIDE[node]}/24", "dev", "eth0")
        _ip("-n", ns, "link", "set", "eth0", "up")
    _ip("-n", login, "link", "set", "cluster", "up")
    _ip("-n", login, "link", "set", "laptop", "up")
    _ip("-n", laptop, "link", "set", "eth0", "up")
    # A new namespace may inherit the machine's forwarding; login is a host, not a router.
    off = ("sh", "-c", "echo 0 > /proc/sys/net/ipv4/ip_forward")
    _run(*network.enter_namespace(LOGIN), *off)


def remove_namespaces(network: Network) -> None:
    """Remove the namespaces that are there; their interfaces go with them."""
    for name in network.namespaces.values():
        if Path("/run/netns", name).exists():
            _ip("netns", "del", name)


def set_laptop_link(network: Network, *, up: bool) -> None:
    """Pull or plug the laptop's cable. Raises UsageError on loopback, which has none."""
    if not network.namespaces:
        raise UsageError(
            "a loopback lab has no link to take down",
            hint="`tk lab cut` cuts at the proxy; `tk lab up --netns` (root) has a true link",
        )
    _ip("-n", network.namespaces["laptop"], "link", "set", "eth0", "up" if up else "down")


def _ip(*words: str) -> None:
    _run(find_program("ip"), *words)


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TunnelkitError(
            f"the lab's network can't be made: `{' '.join(argv)}` failed",
            cause=done.stderr.strip(),
            hint="the netns flavour needs veth and bridge in the kernel",
        )


def _may_unshare() -> bool:
    """True if each host can have its own name and /etc/hosts; root in a container often can't."""
    if os.geteuid() != 0:
        return False
    argv = [find_program("unshare"), "--uts", "--mount", "--propagation", "slave", "true"]
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


def _own_name_is_loopback() -> bool:
    """True if this machine's name means 127.0.0.1; `NoInAddrAny` binds Slurm to its address."""
    try:
        return socket.gethostbyname(socket.gethostname()) == "127.0.0.1"
    except OSError:
        return False


def _is_offline() -> bool:
    """Asked for IPv4 "as configured", as Slurm asks, getaddrinfo finds no name without a network:
    addresses of loopback don't count."""
    try:
        socket.getaddrinfo("127.0.0.1", None, socket.AF_INET, 0, 0, socket.AI_ADDRCONFIG)
    except OSError:
        return True
    return False


def _free_port(address: str, held: ExitStack) -> int:
    """A port that is free on `address`, kept busy until `held` closes.

    Below the ephemeral range, so that no outgoing connection takes it before its daemon does.
    """
    for _ in range(200):
        port = random.randrange(20000, 32000)  # noqa: S311
        probe = held.enter_context(socket.socket())
        # What servers do: ports in TIME_WAIT are free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            continue
        return port
    raise TunnelkitError(f"no free port on {address}", hint="is something using them all?")
