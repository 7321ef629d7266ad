"""LocalForwards on live masters: which way each takes, and how they come back.

Three routes: `login` ends on the login host itself; `node` uses the laptop's own
master to the node, which rides inside the login's and so encrypts twice; `chain`
goes by a unix socket on the login host into an ssh that runs there (hop_forward.py).
With AES-GCM in the CPU `node` is the faster one by scripts/bench, and it leaves
nothing running on the login host; `chain` serves where only the login host may ssh
to nodes.

ssh listens at a unix socket in the link's directory, and an `OwnUserPort` has the port; a shared
forward's port is ssh's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import socket
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunnelkit import local_ports
from tunnelkit.child_process import run_child
from tunnelkit.errors import ConnectionFailed, TunnelkitError, UsageError
from tunnelkit.link.openssh.control_master import ControlMaster
from tunnelkit.link.openssh.sessions import OpenSSHSessions
from tunnelkit.link.shared.hop_forward import FORBIDDEN, PROBE_TARGET, HopForward
from tunnelkit.link.shared.hop_forward_pool import (
    HopForwardPool,
    Key,
    Route,
    by_first_way,
    no_unix_sockets,
)
from tunnelkit.link.shared.loss import first_end
from tunnelkit.link.shared.own_user_port import OwnUserPort, OwnUserPorts
from tunnelkit.model import LocalForward

_PROBE_S = 5.0


@dataclass(frozen=True)
class ActiveForward:
    """A forward in place: `spec` is what `master` was asked for, while it had `pid`. gate: the
    port, where that is not ssh's."""

    route: Route
    master: ControlMaster
    spec: str
    pid: int | None
    gate: OwnUserPort | None = None
    chain: HopForward | None = None

    @property
    def is_up(self) -> bool:
        return self.on_its_master and (self.chain is None or self.chain.is_up)

    @property
    def on_its_master(self) -> bool:
        """True if the connection that made this forward is still the current one."""
        return self.master.is_up and self.master.pid == self.pid


class OpenSSHForwards:
    """The forwards of one link. `node_master` opens (or gives) the master to a node."""

    def __init__(
        self,
        login: ControlMaster,
        login_sessions: OpenSSHSessions,
        node_master: Callable[[str], Awaitable[ControlMaster]],
        *,
        directory: Path,
        connect_timeout_s: int,
        node_routes: Sequence[str],
    ) -> None:
        self._login = login
        self._node_master = node_master
        self._directory = directory
        self._state_file = directory / "forwards.json"
        self._node_routes = node_routes
        self._wanted: dict[Key, ActiveForward | None] = {}
        self._failed: dict[Key, TunnelkitError] = {}
        self._chains = HopForwardPool(
            login_sessions, self._check_streamlocal, connect_timeout_s=connect_timeout_s
        )
        self._gates = OwnUserPorts()
        self._allowed: set[int] = set()
        self._lock = asyncio.Lock()
        self.changed = asyncio.Event()

    async def add(self, forward: LocalForward, node: str | None) -> None:
        """Put a forward in place; nothing happens if it already is. Raises as `Link.forward`."""
        async with self._lock:
            await self._add((forward, node))

    async def cancel(self, forward: LocalForward, node: str | None) -> None:
        """Take a forward away; established connections through it go on."""
        async with self._lock:
            active = self._wanted.pop((forward, node), None)
            self._failed.pop((forward, node), None)
            if active is not None:
                await self._withdraw(forward, active)
            self._save()
            self.changed.set()

    def route(self, forward: LocalForward, node: str | None) -> Route | None:
        """The route of a forward that is in place, else None."""
        active = self._wanted.get((forward, node))
        return active.route if active and active.is_up else None

    def failed(self) -> dict[Key, TunnelkitError]:
        """Forwards that were in place once and could not be put back, with the reason."""
        return dict(self._failed)

    async def restore(self) -> None:
        """Put back what a lost connection took along. What can't be is in `failed`."""
        async with self._lock:
            self._chains.try_anew()
            for key, active in list(self._wanted.items()):
                if active is not None and active.is_up:
                    continue
                try:
                    if active is not None:
                        await self._withdraw(key[0], active)
                        self._wanted[key] = None
                    await self._add(key)
                except TunnelkitError as error:
                    self._failed[key] = error

    async def drop_leftovers(self, master: ControlMaster) -> None:
        """Cancel the listeners that a killed predecessor asked of an adopted master."""
        try:
            entries = json.loads(self._state_file.read_text())
        except (OSError, ValueError):
            return
        for control_path, spec in entries:
            if control_path == str(master.control_path):
                await master.control("cancel", "-L", spec)
        self._remove_sockets()

    def carriers(self) -> list[Coroutine[Any, Any, str]]:
        """Coroutines that end when a forward is lost, each with the reason.

        Those that `restore` gave up are left out; those that were lost before anybody waited are
        in.
        """
        return [_gone(active) for active in self._wanted.values() if active is not None]

    async def close(self) -> None:
        """Forget all forwards and end the chains; the masters take their listeners along."""
        async with self._lock:
            for active in self._wanted.values():
                if active is not None and active.gate is not None:
                    active.gate.close()
            self._wanted.clear()
            self._failed.clear()
            await self._gates.close()
            self._remove_sockets()
            await self._chains.close()
            self._state_file.unlink(missing_ok=True)

    # -- one forward

    async def _add(self, key: Key) -> None:
        forward, node = key
        active = self._wanted.get(key)
        if active is not None and active.is_up:
            return
        local_ports.check_free(forward.bind_port)
        if node is None:
            await self._check_allowed(self._login)
            active = await self._by_master("login", self._login, forward)
        else:
            active = await self._to_node(node, forward)
        self._wanted[key] = active
        self._failed.pop(key, None)
        self._save()
        self.changed.set()

    async def _to_node(self, node: str, forward: LocalForward) -> ActiveForward:
        ways = {
            "node": lambda: self._by_node(node, forward),
            "chain": lambda: self._by_chain(node, forward),
        }
        return await by_first_way(node, self._node_routes, ways)

    async def _by_node(self, node: str, forward: LocalForward) -> ActiveForward:
        master = await self._node_master(node)
        await self._check_allowed(master)
        return await self._by_master("node", master, forward)

    async def _by_chain(self, node: str, forward: LocalForward) -> ActiveForward:
        chain = await self._chains.get(node)
        path = await chain.add(forward)
        try:
            spec, gate = await self._open(self._login, forward, path)
        except TunnelkitError:
            await chain.remove(forward)
            raise
        return ActiveForward("chain", self._login, spec, self._login.pid, gate, chain)

    async def _by_master(
        self, route: Route, master: ControlMaster, forward: LocalForward
    ) -> ActiveForward:
        host = f"[{forward.host}]" if ":" in forward.host else forward.host
        spec, gate = await self._open(master, forward, f"{host}:{forward.port}")
        return ActiveForward(route, master, spec, master.pid, gate)

    async def _open(
        self, master: ControlMaster, forward: LocalForward, target: str
    ) -> tuple[str, OwnUserPort | None]:
        """Have the master listen for the forward; what it was asked for, and the port's gate."""
        if forward.shared:
            spec = f"127.0.0.1:{forward.bind_port}:{target}"
            await self._listen(master, spec)
            return spec, None
        path = self._socket_of(forward)
        path.unlink(missing_ok=True)
        spec = f"{_escaped(path)}:{target}"
        await self._listen(master, spec)
        try:
            return spec, self._gates.open(forward.bind_port, path)
        except UsageError:
            await master.control("cancel", "-L", spec)
            path.unlink(missing_ok=True)
            raise

    def _socket_of(self, forward: LocalForward) -> Path:
        return self._directory / f"f-{forward.bind_port}"

    def _remove_sockets(self) -> None:
        for path in self._directory.glob("f-*"):
            path.unlink(missing_ok=True)

    async def _listen(self, master: ControlMaster, spec: str) -> None:
        done = await master.control("forward", "-L", spec)
        if done.exit_code != 0:
            raise ConnectionFailed(
                f"ssh to {master.host} did not take the forward {spec}",
                cause=done.error_text or done.text.strip(),
                transient=True,
                hint="tk tries again; `tk doctor` checks whether forwards are allowed",
            )

    async def _withdraw(self, forward: LocalForward, active: ActiveForward) -> None:
        """Cancel at both ends what is still there of a forward."""
        if active.gate is not None:
            active.gate.close()
            self._socket_of(forward).unlink(missing_ok=True)
        with contextlib.suppress(ConnectionFailed):
            if active.on_its_master:
                await active.master.control("cancel", "-L", active.spec)
            if active.chain is not None and active.chain.is_up:
                await active.chain.remove(forward)

    # -- the ways

    async def _check_streamlocal(self, chain: HopForward) -> None:
        """Prove that the login's sshd lets us reach a unix socket there: the chain's own
        control socket greets at once, and nothing else is disturbed."""
        local = self._directory / "probe.s"
        spec = f"{local}:{chain.control_socket}"
        await self._listen(self._login, spec)
        try:
            greeting = await asyncio.wait_for(_first_bytes(local), _PROBE_S)
        except (OSError, TimeoutError):
            greeting = b""
        finally:
            await self._login.control("cancel", "-L", spec)
            local.unlink(missing_ok=True)
        if not greeting:
            raise no_unix_sockets(self._login.host)

    async def _check_allowed(self, master: ControlMaster) -> None:
        """Raise ConnectionFailed if sshd forbids TCP forwarding: ssh itself would listen
        all the same, and let every connection die."""
        if master.pid is None or master.pid in self._allowed or master.adopted:
            return  # an adopted master's log is not ours to read
        mark = master.log.mark()
        argv = [*master.command.control(master.control_path), "-W", PROBE_TARGET, "--", "mux"]
        with contextlib.suppress(TimeoutError):
            await run_child(argv, timeout_s=_PROBE_S)
            line = await asyncio.wait_for(master.log.wait_for("open failed", mark=mark), 1.0)
            if FORBIDDEN in line:
                raise ConnectionFailed(
                    f"{master.host} forbids TCP forwarding",
                    cause=line,
                    hint="ask its admins for AllowTcpForwarding",
                )
        self._allowed.add(master.pid)

    def _save(self) -> None:
        """Write down what was asked of which master, for a successor's `drop_leftovers`."""
        entries = [
            [str(active.master.control_path), active.spec]
            for active in self._wanted.values()
            if active is not None
        ]
        draft = self._state_file.with_suffix(".new")
        draft.unlink(missing_ok=True)
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "w") as file:
            json.dump(entries, file)
        draft.rename(self._state_file)


async def _gone(active: ActiveForward) -> str:
    """Return, with the reason, once a forward's connections are no more what they were."""
    if not active.is_up:
        name = active.chain.node if active.chain else active.master.host
        return f"the connection of the forward to {name} ended"
    chain = [active.chain.wait()] if active.chain else []
    return await first_end(active.master.wait(), *chain)


def _escaped(path: Path) -> str:
    """The path as a field of ssh's -L."""
    return re.sub(r"([\\:])", r"\\\1", str(path))


async def _first_bytes(path: Path) -> bytes:
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX) as sock:
        sock.setblocking(False)
        await loop.sock_connect(sock, str(path))
        return await loop.sock_recv(sock, 4)
