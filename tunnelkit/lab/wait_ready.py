"""Waits until the lab works, and names the daemon at fault if it does not."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from tunnelkit.errors import ConnectionFailed, SchedulerError, TunnelkitError
from tunnelkit.lab import programs, slurm
from tunnelkit.lab.layout import LOGIN, NODES, Layout
from tunnelkit.lab.state import PROXY, State

_READY_S = 60.0


def wait_for_file(state: State, path: Path, daemon: str) -> None:
    """Return once `path` is there, which `daemon` makes when it is ready."""
    ends = time.monotonic() + _READY_S
    while not path.exists():
        if time.monotonic() > ends or not state.daemons[daemon].alive:
            raise _blame(state, SchedulerError, f"the lab's {daemon} did not start", daemon)
        time.sleep(0.01)


def wait_ssh(state: State) -> None:
    """Return once ssh gets from the laptop through proxy and login to every node."""
    ends = time.monotonic() + _READY_S
    for node in NODES:
        argv = [*state.info.enter, programs.find_program("ssh"), "-F", str(state.info.ssh_config)]
        argv += ["-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "--", node, "true"]
        while (done := failure(argv)) is not None:
            dead = [name for name in _dead(state) if name == PROXY or name.startswith("sshd-")]
            if time.monotonic() > ends or dead:
                daemon = dead[0] if dead else f"sshd-{node}"
                message = f"ssh does not reach the lab's {node}"
                raise _blame(state, ConnectionFailed, message, daemon, done)
            time.sleep(0.05)


def failure(argv: list[str]) -> str | None:
    """None if the command succeeds, else its last words."""
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=20, check=False
        )
    except subprocess.TimeoutExpired:
        return "no answer in 20 s"
    if done.returncode == 0:
        return None
    return done.stderr.decode("utf-8", "replace").strip() or f"exit status {done.returncode}"


def wait_slurm(state: State) -> None:
    """Return once sinfo calls every node idle."""
    ends = time.monotonic() + _READY_S
    run = state.on(LOGIN)
    while True:
        states = slurm.node_states(run)
        if set(states) == set(NODES) and set(states.values()) == {"idle"}:
            return
        dead = _dead(state)
        if time.monotonic() > ends or dead:
            break
        time.sleep(0.05)
    lagging = [f"slurmd-{node}" for node in NODES if states.get(node) != "idle"]
    daemon = dead[0] if dead else lagging[0] if states else "slurmctld"
    answer = ", ".join(f"{node} {word}" for node, word in states.items()) or "sinfo has no answer"
    raise _blame(state, SchedulerError, "the lab's Slurm does not get ready", daemon, answer)


def _dead(state: State) -> list[str]:
    return [daemon.name for daemon in state.daemons.values() if not daemon.alive]


def port_taken(found: Layout) -> bool:
    """True if a daemon's log says that another program uses its port."""
    for log in (found.dir / "log").glob("*.log"):
        if "address already in use" in log.read_text("utf-8", errors="replace").lower():
            return True
    return False


def _blame(
    state: State, kind: type[TunnelkitError], message: str, daemon: str, answer: str = ""
) -> TunnelkitError:
    """Return an error with the last lines of that daemon's log: the log itself is removed."""
    try:
        text = state.layout.log(daemon).read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    tail = " | ".join(text.strip().splitlines()[-5:]) or "empty"
    cause = f"{answer}; " if answer else ""
    return kind(message, cause=f"{cause}{daemon}'s log ends: {tail}")
