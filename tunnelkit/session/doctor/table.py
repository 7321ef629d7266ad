"""All checks, in the order in which they are told: from the laptop to the node."""

from __future__ import annotations

from tunnelkit.session.doctor import cluster, laptop, node
from tunnelkit.session.doctor.base import Check

CHECKS: tuple[Check, ...] = (
    Check("config", laptop.config, "tk init"),
    Check("session", laptop.session, "see `tk logs --session`; tk down, then tk up", limit_s=8.0),
    Check("ssh", laptop.ssh, "install a current OpenSSH client"),
    Check("ssh-config", laptop.ssh_config, "see `ssh -G HOST`", needs=("config",)),
    Check(
        "rsync-here",
        laptop.rsync,
        "install rsync 3.0 or newer (macOS: brew install rsync)",
    ),
    Check("file-events", laptop.file_events, "pip install -U watchdog"),
    Check(
        "inotify",
        laptop.inotify,
        "sudo sysctl fs.inotify.max_user_watches=1048576",
        needs=("config", "session"),
    ),
    Check(
        "editor-port",
        laptop.editor_port,
        "end that program, or set another [debug] port and run tk vscode",
        needs=("config", "session"),
    ),
    Check("editor-files", laptop.editor_files, "tk vscode", needs=("config", "session")),
    Check(
        "connection",
        cluster.connection,
        "see what `ssh HOST` says in a terminal",
        needs=("config", "session", "ssh"),
        limit_s=30.0,
        asks=True,
    ),
    Check(
        "multiplexing",
        cluster.multiplexing,
        "the login host is busy or far away; nothing is wrong with tk",
        needs=("connection",),
    ),
    Check(
        "login-shell",
        cluster.login_shell,
        "set a login shell there that runs commands by `-c`: see chsh, or ask the site",
        needs=("connection",),
    ),
    Check(
        "python",
        cluster.python,
        "install or load a Python 3.8+ there and name it: [cluster] python in tunnelkit.toml",
        needs=("connection",),
    ),
    Check(
        "rsync-there",
        cluster.rsync,
        "ask the site for rsync 3.0 or newer, or install one in your home there",
        needs=("connection",),
    ),
    Check(
        "home",
        cluster.home,
        "make room there (du -xh ~ | sort -h), or set [cluster] directory to another place",
        needs=("connection",),
    ),
    Check("quota", cluster.quota, "make room there: du -xh ~ | sort -h", needs=("connection",)),
    Check("clock", cluster.clock, "set the laptop's clock by NTP", needs=("connection",)),
    Check(
        "forwards",
        cluster.forwards,
        "nothing to do; for more speed ask the site for AllowTcpForwarding yes",
        needs=("connection",),
    ),
    Check(
        "scheduler",
        cluster.scheduler,
        "set [cluster] scheduler in tunnelkit.toml to what is there, or to another login host",
        needs=("connection",),
    ),
    Check(
        "node-ssh",
        node.node_ssh,
        'nothing to do; [cluster] node_ssh = "no" saves the try',
        needs=("connection",),
        limit_s=20.0,
    ),
    Check(
        "debugpy",
        node.debugpy,
        "pip install -U debugpy, in that interpreter's environment",
        needs=("connection",),
        limit_s=20.0,
    ),
)
