"""Who is at the other end of a loopback connection."""

import os
import socket
import struct
import sys
from typing import Optional, Tuple

Address = Tuple[str, int]


def same_user(peer: Address, own: Address) -> bool:
    """True if the process at the other end of a loopback TCP connection has our uid.

    `peer` and `own` are as `accept` and `getsockname` tell. Linux names the owner of
    every socket in /proc/net/tcp. Elsewhere nothing does; there tk only ever serves a
    person's own laptop, and answers True.
    """
    if not sys.platform.startswith("linux"):
        return True
    return socket_owner(peer, own) == os.getuid()


def socket_owner(local: Address, remote: Address) -> Optional[int]:
    """The uid that owns the IPv4 TCP socket `local` connected to `remote`, or None."""
    wanted = [_hex(local).encode(), _hex(remote).encode()]
    try:
        with open("/proc/net/tcp", "rb") as table:
            for line in table:
                fields = line.split()
                if fields[1:3] == wanted:
                    return int(fields[7])
    except (OSError, ValueError, IndexError):
        return None
    return None


def _hex(address: Address) -> str:
    # The kernel prints the address in the machine's own byte order.
    (number,) = struct.unpack("=I", socket.inet_aton(address[0]))
    return f"{number:08X}:{address[1]:04X}"
