"""The commands and topics of tk, by name; a command's module is imported by `find` only."""

from __future__ import annotations

#: command -> module below tunnelkit.cli.commands, and there the function; of a group, the app.
COMMANDS = {
    "up": "start.up:up",
    "down": "start.up:down",
    "status": "start.status:status",
    "logs": "jobs.logs:logs",
    "run": "node.run:run_command",
    "shell": "node.run:shell",
    "auth": "start.auth:auth",
    "loop": "debug.loop:loop",
    "ranks": "debug.ranks:ranks",
    "console": "debug.console:console",
    "pdb": "debug.pdb:pdb",
    "attach": "debug.attach:attach",
    "interrupt": "debug.interrupt:interrupt",
    "ready": "debug.ready:ready",
    "sync": "files.sync:sync",
    "pull": "files.pull:pull",
    "forward": "node.forward:forward",
    "mount": "files.mount:mount",
    "umount": "files.mount:umount",
    "init": "start.init:init",
    "trust": "start.trust:trust",
    "vscode": "debug.vscode:vscode",
    "why": "jobs.why:why",
    "top": "jobs.top:top",
    "submit": "jobs.submit:submit",
    "keep": "jobs.keep:keep",
    "simulate": "jobs.simulate:simulate",
    "doctor": "support.doctor:doctor",
    "bugreport": "support.bugreport:bugreport",
    "help": "support.help:show_help",
    "config": "support.config:app",
    "demo": "support.demo:demo",
    "lab": "support.lab:app",
    "version": "support.version:version",
}

#: What follows the first argument of these is another program's.
RUN_PROGRAMS = frozenset({"run", "loop", "pdb"})
#: These read all their words themselves: their options are also another program's.
WHOLE_LINES = frozenset({"submit", "simulate"})

#: In the order in which somebody new would read them.
TOPICS = (
    "getting-started",
    "config",
    "auth",
    "schedulers",
    "kubernetes",
    "why",
    "simulate",
    "mirror",
    "debugging",
    "ranks",
    "console",
    "editors",
    "ports",
    "troubleshooting",
    "completion",
    "exit-codes",
    "files",
    "security",
)


def find(command: str) -> object:
    """Return a command's function, or a group's app."""
    from importlib import import_module

    module, _, name = COMMANDS[command].partition(":")
    return getattr(import_module(f"tunnelkit.cli.commands.{module}"), name)
