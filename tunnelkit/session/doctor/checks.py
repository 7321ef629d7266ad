"""The checks of clusters reached by ssh, in the order of their report: from laptop to node."""

from __future__ import annotations

from tunnelkit.session.doctor import cluster_checks, laptop_checks, node_checks
from tunnelkit.session.doctor.check import Check

SSH_CHECKS: tuple[Check, ...] = (
    Check("config", laptop_checks.config, "tk init"),
    Check(
        "session",
        laptop_checks.session,
        "see `tk logs --session`; tk down, then tk up",
        limit_s=8.0,
    ),
    Check("ssh", laptop_checks.ssh, "install a current OpenSSH client"),
    Check("ssh-config", laptop_checks.ssh_config, "see `ssh -G HOST`", needs=("config",)),
    Check(
        "rsync-here",
        laptop_checks.rsync,
        "install rsync 3.0 or newer (macOS: brew install rsync)",
    ),
    Check("file-events", laptop_checks.file_events, "pip install -U watchdog"),
    Check(
        "inotify",
        laptop_checks.inotify,
        "sudo sysctl fs.inotify.max_user_watches=1048576",
        needs=("config", "session"),
    ),
    Check(
        "editor-port",
        laptop_checks.editor_port,
        "end that program, or set another [debug] port and run tk vscode",
        needs=("config", "session"),
    ),
    Check("editor-files", laptop_checks.editor_files, "tk vscode", needs=("config", "session")),
    Check(
        "connection",
        cluster_checks.connection,
        "see what `ssh HOST` says in a terminal",
        needs=("config", "session", "ssh"),
        limit_s=30.0,
        asks=True,
    ),
    Check(
        "multiplexing",
        cluster_checks.multiplexing,
        "the login host is busy or far away; nothing is wrong with tk",
        needs=("connection",),
    ),
    Check(
        "login-shell",
        cluster_checks.login_shell,
        "set a login shell there that runs commands by `-c`: see chsh, or ask the site",
        needs=("connection",),
    ),
    Check(
        "python",
        cluster_checks.python,
        "install or load a Python 3.8+ there and name it: [cluster] python in tunnelkit.toml",
        needs=("connection",),
    ),
    Check(
        "rsync-there",
        cluster_checks.rsync,
        "ask the site for rsync 3.0 or newer, or install one in your home there",
        needs=("connection",),
    ),
    Check(
        "home",
        cluster_checks.home,
        "make room there (du -xh ~ | sort -h), or set [cluster] directory to another place",
        needs=("connection",),
    ),
    Check(
        "quota", cluster_checks.quota, "make room there: du -xh ~ | sort -h", needs=("connection",)
    ),
    Check("clock", cluster_checks.clock, "set the laptop's clock by NTP", needs=("connection",)),
    Check(
        "forwards",
        cluster_checks.forwards,
        "nothing to do; for more speed ask the site for AllowTcpForwarding yes",
        needs=("connection",),
    ),
    Check(
        "scheduler",
        cluster_checks.scheduler,
        "set [cluster] scheduler in tunnelkit.toml to what is there, or to another login host",
        needs=("connection",),
    ),
    Check(
        "node-ssh",
        node_checks.node_ssh,
        'nothing to do; [cluster] node_ssh = "no" saves the try',
        needs=("connection",),
        limit_s=20.0,
    ),
    Check(
        "debugpy",
        node_checks.debugpy,
        "pip install -U debugpy, in that interpreter's environment",
        needs=("connection",),
        limit_s=20.0,
    ),
)
