"""A cluster on this machine: real sshd, real munge, real Slurm, run by an ordinary user.

info = lab.up()
...  # ssh -F info.ssh_config node1
lab.down()
"""

from tunnelkit.lab.cluster import down, info, on, status, up
from tunnelkit.lab.faults import (
    cut,
    heal,
    link_down,
    link_up,
    reset,
    set_rtt,
    start_daemon,
    stop_daemon,
    traffic_bytes,
)
from tunnelkit.lab.layout import DaemonStatus, LabInfo, LabStatus

__all__ = [
    "DaemonStatus",
    "LabInfo",
    "LabStatus",
    "cut",
    "down",
    "heal",
    "info",
    "link_down",
    "link_up",
    "on",
    "reset",
    "set_rtt",
    "start_daemon",
    "status",
    "stop_daemon",
    "traffic_bytes",
    "up",
]
