"""LocalForwards on live ControlMasters.

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
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tunnelkit.child_process import run_child
from tunnelkit.errors import ConnectionFailed, UsageError
from tunnelkit.link.openssh.control_master import ControlMaster
from tunnelkit.link.openssh.sessions import OpenSSHSessions
from tunnelkit.link.options import LinkOptions
from tunnelkit.link.shared.forward_table import ForwardTable, remove_far_end
from tunnelkit.link.shared.hop_forward import FORBIDDEN, PROBE_TARGET, HopForward
from tunnelkit.link.shared.hop_forward_pool import Route, no_unix_sockets
from tunnelkit.link.shared.own_user_port import OwnUserPort, OwnUserPorts
from tunnelkit.model import LocalForward

_PROBE_S = 5.0


@dataclass(frozen=True)
class OpenSSHForward:
    """A forward in place: `spec` is what the master was asked for, while it had `pid`. gate: the
    port, where that is not ssh's."""

    route: Route
    connection: ControlMaster
    spec: str
    pid: int | None
    gate: OwnUserPort | None = None
    chain: HopForward | None = None

    @property
    def is_up(self) -> bool:
        """True if its master, and the chain where it has one, are still there."""
        return self.on_its_master and (self.chain is None or self.chain.is_up)

    @property
    def on_its_master(self) -> bool:
        """True if the connection that made this forward is still the current one."""
        return self.connection.is_up and self.connection.pid == self.pid


class OpenSSHForwards(ForwardTable[ControlMaster, OpenSSHForward]):
    """The forwards of one link over ControlMasters; see `ForwardTable`.

    directory: the link's own, for ssh's sockets and the record for a successor."""

    def __init__(
        self,
        login: ControlMaster,
        login_sessions: OpenSSHSessions,
        node_connection: Callable[[str], Awaitable[ControlMaster]],
        options: LinkOptions,
        *,
        directory: Path,
    ) -> None:
        super().__init__(login, login_sessions, node_connection, options)
        self._directory = directory
        self._state_file = directory / "forwards.json"
        self._gates = OwnUserPorts()
        self._allowed: set[int] = set()

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

    # -- one forward

    async def _by_connection(
        self, route: Route, connection: ControlMaster, forward: LocalForward
    ) -> OpenSSHForward:
        await self._check_allowed(connection)
        host = f"[{forward.host}]" if ":" in forward.host else forward.host
        spec, gate = await self._open(connection, forward, f"{host}:{forward.port}")
        return OpenSSHForward(route, connection, spec, connection.pid, gate)

    async def _through(self, chain: HopForward, path: str, forward: LocalForward) -> OpenSSHForward:
        spec, gate = await self._open(self._login, forward, path)
        return OpenSSHForward("chain", self._login, spec, self._login.pid, gate, chain)

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

    async def _withdraw(self, forward: LocalForward, active: OpenSSHForward) -> None:
        """Cancel at both ends what is still there of a forward."""
        if active.gate is not None:
            active.gate.close()
            self._socket_of(forward).unlink(missing_ok=True)
        with contextlib.suppress(ConnectionFailed):
            if active.on_its_master:
                await active.connection.control("cancel", "-L", active.spec)
            await remove_far_end(forward, active.chain)

    async def _end(self, active: Sequence[OpenSSHForward]) -> None:
        """Close the ports; the masters take their listeners along."""
        for one in active:
            if one.gate is not None:
                one.gate.close()
        await self._gates.close()
        self._remove_sockets()
        self._state_file.unlink(missing_ok=True)

    # -- checks

    async def _check_streamlocal(self, chain: HopForward) -> None:
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
        """Write down what was asked of which master, for a successor's `drop_leftovers`.

        A full disk costs no forward that is open."""
        entries = [
            [str(active.connection.control_path), active.spec]
            for active in self._wanted.values()
            if active is not None
        ]
        draft = self._state_file.with_suffix(".new")
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
            fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(fd, "w") as file:
                json.dump(entries, file)
            draft.rename(self._state_file)


def _escaped(path: Path) -> str:
    """The path as a field of ssh's -L."""
    return re.sub(r"([\\:])", r"\\\1", str(path))


async def _first_bytes(path: Path) -> bytes:
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX) as sock:
        sock.setblocking(False)
        await loop.sock_connect(sock, str(path))
        return await loop.sock_recv(sock, 4)
