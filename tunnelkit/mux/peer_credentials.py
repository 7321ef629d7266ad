"""The owner of the other end of a loopback connection."""

import os
import socket
import struct
import sys
from typing import Optional, Tuple

Address = Tuple[str, int]

# linux/sock_diag.h, linux/inet_diag.h: ask for one socket by its four numbers.
_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST = 1
_NO_COOKIE = b"\xff" * 8
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBxI2s2s4s12x4s12xI8s")
#: In the answer, after the header: family, state, timer, retrans; the socket's id (48
#: bytes); expires, rqueue, wqueue, uid, inode.
_ANSWER = struct.Struct("=4x48x3III")
_ANY_STATE = 0xFFFFFFFF


def same_user(peer: Address, own: Address) -> bool:
    """True if the process at the other end of a loopback TCP connection has our uid.

    peer, own: as `accept` and `getsockname` return them. Linux reports the owner of every
    socket. Other systems don't; there tk only serves the user's own laptop, and the answer is
    True.
    """
    if not sys.platform.startswith("linux"):
        return True
    return socket_owner(peer, own) == os.getuid()


def network() -> str:
    """Return an id of this machine's network namespace; "" if it is not known."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip() + " " + os.readlink("/proc/self/ns/net")
    except OSError:
        return ""


def socket_owner(local: Address, remote: Address) -> Optional[int]:
    """Return the uid that owns the IPv4 TCP socket `local` connected to `remote`, or None."""
    found = _socket_of(local, remote)
    return found[0] if found is not None else None


def socket_inode(local: Address, remote: Address) -> Optional[int]:
    """Return the inode of that socket: `/proc/PID/fd` links to `socket:[INODE]`."""
    found = _socket_of(local, remote)
    return found[1] if found is not None else None


def _socket_of(local: Address, remote: Address) -> Optional[Tuple[int, int]]:
    """Return (uid, inode) of a socket that a process holds.

    A kernel without tcp_diag, or a sandbox without netlink, still has the table."""
    found = _ask_kernel(local, remote)
    if found is None:
        found = _look_up(local, remote)
    # A socket that its process has closed is listed with inode 0 and uid 0, whatever its owner.
    return found if found is not None and found[1] != 0 else None


def _ask_kernel(local: Address, remote: Address) -> Optional[Tuple[int, int]]:
    """Ask by netlink; the table in /proc grows with every connection of the machine."""
    size = _HEADER.size + _REQUEST.size
    question = _HEADER.pack(size, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0) + _REQUEST.pack(
        socket.AF_INET,
        socket.IPPROTO_TCP,
        0,
        _ANY_STATE,
        struct.pack("!H", local[1]),
        struct.pack("!H", remote[1]),
        socket.inet_aton(local[0]),
        socket.inet_aton(remote[0]),
        0,
        _NO_COOKIE,
    )
    try:
        family = getattr(socket, "AF_NETLINK", -1)
        with socket.socket(family, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
            kernel.settimeout(1.0)
            kernel.sendto(question, (0, 0))
            answer = kernel.recv(4096)
    except OSError:
        return None
    if len(answer) < _HEADER.size + _ANSWER.size:
        return None
    _, kind, _, _, _ = _HEADER.unpack_from(answer)
    if kind != _SOCK_DIAG_BY_FAMILY:
        return None
    uid, inode = _ANSWER.unpack_from(answer, _HEADER.size)[3:]
    return int(uid), int(inode)


def _look_up(local: Address, remote: Address) -> Optional[Tuple[int, int]]:
    wanted = [_hex(local).encode(), _hex(remote).encode()]
    try:
        with open("/proc/net/tcp", "rb") as table:
            for line in table:
                fields = line.split()
                if fields[1:3] == wanted:
                    return int(fields[7]), int(fields[9])
    except (OSError, ValueError, IndexError):
        return None
    return None


def _hex(address: Address) -> str:
    # The kernel prints the address in the machine's own byte order.
    (number,) = struct.unpack("=I", socket.inet_aton(address[0]))
    return f"{number:08X}:{address[1]:04X}"
