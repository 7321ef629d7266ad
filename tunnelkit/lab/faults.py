"""Faults on purpose: of the connection from laptop to login, and of single daemons."""

from __future__ import annotations

from pathlib import Path

from tunnelkit.errors import UsageError
from tunnelkit.lab import network, proxy
from tunnelkit.lab.layout import Layout, resolve_dir
from tunnelkit.lab.processes import end_all, is_alive
from tunnelkit.lab.state import SUPERVISOR, LabDaemon, State, require


def cut(dir: Path | None = None) -> None:
    """Black hole between laptop and login: connections stay, nothing passes, new ones hang."""
    proxy.tell(_require(dir).layout.proxy_socket, "cut")


def reset(dir: Path | None = None) -> None:
    """Reset all connections between laptop and login and refuse new ones."""
    proxy.tell(_require(dir).layout.proxy_socket, "reset")


def heal(dir: Path | None = None) -> None:
    """End `cut`, `reset` and `link_down`."""
    state = _require(dir)
    if state.network.namespaces:
        network.set_laptop_link(state.network, up=True)
    proxy.tell(state.layout.proxy_socket, "heal")


def set_rtt(rtt_ms: float, dir: Path | None = None) -> None:
    """Round-trip time between laptop and login, in milliseconds; also of live connections."""
    value = proxy.parse_rtt_ms(str(rtt_ms))
    proxy.tell(_require(dir).layout.proxy_socket, f"rtt {value}")


def traffic_bytes(dir: Path | None = None) -> tuple[int, int]:
    """Bytes that the proxy has had from the laptop and from login since it started."""
    status = proxy.tell(_require(dir).layout.proxy_socket, "status")
    return int(str(status["bytes_up"])), int(str(status["bytes_down"]))


def link_down(dir: Path | None = None) -> None:
    """Take the laptop's network interface down (netns only; UsageError on loopback)."""
    network.set_laptop_link(_require(dir).network, up=False)


def link_up(dir: Path | None = None) -> None:
    """Take the laptop's network interface up again (netns only; UsageError on loopback)."""
    network.set_laptop_link(_require(dir).network, up=True)


def stop_daemon(name: str, dir: Path | None = None) -> None:
    """End one daemon (names as in `status`), not what it has started: open ssh sessions live on
    when their sshd ends, running jobs when their slurmd does."""
    state = _require(dir)
    process = _daemon(state, name).process
    if process:
        end_all(lambda: {process} if is_alive(process) else set(), grace_s=5.0)


def start_daemon(name: str, dir: Path | None = None) -> None:
    """Start a daemon again that was stopped; one that runs is left alone."""
    state = _require(dir)
    daemon = _daemon(state, name)
    if not daemon.alive:
        state.start(daemon)


def _require(dir: Path | None) -> State:
    return require(Layout(resolve_dir(dir)))


def _daemon(state: State, name: str) -> LabDaemon:
    known = [found for found in state.daemons if found != SUPERVISOR]
    if name not in known:
        raise UsageError(f"the lab has no daemon {name!r}", hint=f"it has {', '.join(known)}")
    return state.daemons[name]
