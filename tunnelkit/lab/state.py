"""The record of a lab: lab.json in its directory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tunnelkit.errors import TunnelkitError, UsageError
from tunnelkit.lab import supervisor
from tunnelkit.lab.environment import daemon_environment, own_program_environment
from tunnelkit.lab.layout import LOGIN, LabInfo, Layout, is_ours, write_private
from tunnelkit.lab.network import Network
from tunnelkit.lab.processes import ProcessId, identify, is_alive

_VERSION = 1
SUPERVISOR = "supervisor"
PROXY = "proxy"


@dataclass(frozen=True)
class LabDaemon:
    """One daemon: its host, argv, and process."""

    name: str
    host: str
    argv: tuple[str, ...]
    process: ProcessId | None = None

    @property
    def alive(self) -> bool:
        """True if the recorded process runs."""
        return self.process is not None and is_alive(self.process)


@dataclass(frozen=True)
class State:
    """Everything that `down` has to undo. Saved before anything is started."""

    info: LabInfo
    network: Network
    daemons: Mapping[str, LabDaemon]
    made_privsep_dir: bool = False

    @property
    def layout(self) -> Layout:
        """The paths of this lab."""
        return Layout(self.info.dir)

    @property
    def processes(self) -> list[ProcessId]:
        """The recorded processes of the daemons."""
        return [daemon.process for daemon in self.daemons.values() if daemon.process]

    def on(self, host: str) -> tuple[str, ...]:
        """argv prefix that runs a program as on `host`, with the environment of a job there."""
        slurm = self.info.scheduler == "slurm"
        env = daemon_environment(self.layout, host, slurm=slurm)
        words = (f"{name}={value}" for name, value in env.items())
        return (*self.network.enter(host, self.layout.hosts), "/usr/bin/env", "-i", *words)

    def save(self) -> None:
        """Write lab.json. Raises OSError."""
        data = {
            "version": _VERSION,
            "info": self.info.to_json(),
            "network": self.network.to_json(),
            "daemons": [_daemon_to_json(daemon) for daemon in self.daemons.values()],
            "made_privsep_dir": self.made_privsep_dir,
        }
        write_private(self.layout.state, json.dumps(data, indent=1) + "\n")

    def with_daemon(self, daemon: LabDaemon) -> State:
        """Return the state with that daemon on record; it is saved."""
        changed = replace(self, daemons={**self.daemons, daemon.name: daemon})
        changed.save()
        return changed

    def start(self, daemon: LabDaemon) -> State:
        """Start a daemon and put it on record. Raises TunnelkitError if it can't be started."""
        layout = self.layout
        if daemon.name == PROXY:
            env = own_program_environment(layout, daemon.host)
        else:
            slurm = self.info.scheduler == "slurm"
            env = daemon_environment(layout, daemon.host, slurm=slurm)
        pid = supervisor.start(
            layout.supervisor_socket,
            name=daemon.name,
            argv=[*self.network.enter(daemon.host, layout.hosts), *daemon.argv],
            env=env,
            log=layout.log(daemon.name),
        )
        return self.with_daemon(replace(daemon, process=identify(pid)))

    def start_supervisor(self) -> State:
        """Start the supervisor and put it on record."""
        layout = self.layout
        pid = supervisor.launch(
            layout.supervisor_socket,
            env=own_program_environment(layout, LOGIN),
            log=layout.log(SUPERVISOR),
        )
        return self.with_daemon(LabDaemon(SUPERVISOR, LOGIN, (), identify(pid)))


def load(layout: Layout) -> State | None:
    """The lab in that directory, or None if there is none.

    Raises TunnelkitError if it is unreadable, UsageError if another user could have written it."""
    if layout.state.exists() and not is_ours(layout.dir):
        raise UsageError(
            f"{layout.dir} is not a directory of yours alone",
            cause="its lab would run programs that another user names",
            hint="name another with --dir or TK_LAB_DIR",
        )
    try:
        data = json.loads(layout.state.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise TunnelkitError(
            f"{layout.state} can't be read", cause=str(error), hint="tk lab down, then tk lab up"
        ) from None
    if data.get("version") != _VERSION or data["info"]["dir"] != str(layout.dir):
        raise TunnelkitError(
            f"{layout.state} is of another lab or another version of tk",
            hint="run `tk lab down` with the tk that made it",
        )
    return State(
        info=LabInfo.from_json(data["info"]),
        network=Network.from_json(data["network"]),
        daemons={item["name"]: _daemon_from_json(item) for item in data["daemons"]},
        made_privsep_dir=data["made_privsep_dir"],
    )


def require(layout: Layout) -> State:
    """The lab in that directory. Raises UsageError if there is none."""
    state = load(layout)
    if state is None:
        raise UsageError(f"there is no lab in {layout.dir}", hint="start one: tk lab up")
    return state


def _daemon_to_json(daemon: LabDaemon) -> dict[str, object]:
    process = daemon.process
    return {
        "name": daemon.name,
        "host": daemon.host,
        "argv": daemon.argv,
        "pid": process.pid if process else None,
        "start": process.start if process else None,
    }


def _daemon_from_json(data: dict[str, Any]) -> LabDaemon:
    process = ProcessId(data["pid"], data["start"]) if data["pid"] else None
    return LabDaemon(data["name"], data["host"], tuple(data["argv"]), process)
