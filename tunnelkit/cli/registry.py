"""The commands and topics of tk, by name; imports nothing."""

from __future__ import annotations

#: command (or group) -> module below tunnelkit.cli.commands that adds it by its `register`.
COMMANDS = {
    "up": "start.up",
    "down": "start.up",
    "status": "start.status",
    "logs": "start.status",
    "run": "node.run",
    "shell": "node.run",
    "auth": "start.auth",
    "loop": "debug.loop",
    "attach": "debug.attach",
    "interrupt": "debug.interrupt",
    "ready": "debug.ready",
    "sync": "files.sync",
    "pull": "files.pull",
    "forward": "node.forward",
    "mount": "files.mount",
    "umount": "files.mount",
    "init": "start.init",
    "trust": "start.trust",
    "vscode": "debug.vscode",
    "doctor": "support.doctor",
    "bugreport": "support.bugreport",
    "help": "support.help",
    "config": "support.config",
    "demo": "support.demo",
    "lab": "support.lab",
    "version": "support.version",
}

#: In the order in which somebody new would read them.
TOPICS = (
    "getting-started",
    "config",
    "auth",
    "schedulers",
    "mirror",
    "debugging",
    "editors",
    "ports",
    "troubleshooting",
    "completion",
    "exit-codes",
    "files",
    "security",
)
