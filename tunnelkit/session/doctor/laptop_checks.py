"""Checks of the laptop: its ssh, its limits, the project's editor files."""

from __future__ import annotations

import contextlib
import os
import shutil
from importlib import metadata
from pathlib import Path

from tunnelkit import local_ports
from tunnelkit.child_process import run_child
from tunnelkit.debug.vscode.vscode import ATTACH_NAME, READY_LABEL
from tunnelkit.debug.vscode.vscode_merge import listed
from tunnelkit.errors import TunnelkitError
from tunnelkit.link.factory import link_name
from tunnelkit.link.openssh.argv import SshCommand
from tunnelkit.link.options import link_options
from tunnelkit.link.shared.socket_dir import MAX_CONTROL_PATH_BYTES
from tunnelkit.mirror.tree.ignore import IgnoreRules
from tunnelkit.mirror.tree.scanner import DIR, Scanner
from tunnelkit.mirror.watch.inotify_limits import limits
from tunnelkit.session.doctor import parse
from tunnelkit.session.doctor.check import Finding, fail, ok, skip, warn
from tunnelkit.session.doctor.context import CheckContext
from tunnelkit.session.doctor.runner import in_thread

#: Multiplexing as tk uses it (-O forward, streamlocal) is older; older versions are untested.
_OLDEST_SSH = (7, 4)
_SAFE_PART = 0.8
#: As long as the longest name of a control socket (link/openssh/link.py).
_SOCKET_NAME = "m-0123456789"


async def config(scene: CheckContext) -> Finding:
    """Check that the settings can be read, and name a login host."""
    settings = scene.settings
    login = settings.require_login()
    where = settings.config_file
    named = f"{where.name} in {where.parent}" if where is not None else "no tunnelkit.toml"
    return ok(f"{named}, login host {login} ({settings.origins['cluster.login']})")


async def session(scene: CheckContext) -> Finding:
    """Check for a live session; its connection is then used."""
    status = await scene.look_for_session(in_thread)
    if status is None:
        return ok("none is up: tk up starts one", up=False)
    where = status["node"] or status["login"]
    text = f"{status['state']}, on {where}" + (
        f", job {status['job']['id']}" if status["job"] else ""
    )
    if status["state"] in ("failed", "ended"):
        return warn(f"{text}: {status['detail']}", fix="tk up starts another", up=True)
    return ok(text, up=True, state=status["state"])


def _by_paramiko(scene: CheckContext) -> bool:
    """True if no ssh program is used; another check reports unreadable settings."""
    try:
        return link_name(scene.settings.cluster.link) == "paramiko"
    except TunnelkitError:
        return False


async def ssh(scene: CheckContext) -> Finding:
    """Check the ssh program, and the length of its control sockets' paths."""
    if _by_paramiko(scene):
        own = metadata.version("paramiko")
        return ok(f"paramiko {own} (knows neither GSSAPI nor FIDO keys)", link="paramiko")
    done = await run_child(["ssh", "-V"], timeout_s=5.0)
    said = (done.text + done.error_text).strip().split(",")[0]
    version = parse.ssh_version(said)
    if version is None:
        return fail(
            f"not OpenSSH: {parse.shorten(said)}", fix="install the OpenSSH client, first in PATH"
        )
    if "Windows" in said:
        return fail(f"{said} can't share a connection", fix="use OpenSSH inside WSL")
    longest = len(os.fsencode(scene.paths.link_dir / _SOCKET_NAME))
    if longest > MAX_CONTROL_PATH_BYTES:
        return fail(
            f"{said}, but the path of its control socket is too long: {longest} bytes, of "
            f"{MAX_CONTROL_PATH_BYTES} at most",
            fix="set TK_RUNTIME_DIR to a short path of your own, such as /tmp/me",
        )
    room = f"{said}, control socket path {longest} of {MAX_CONTROL_PATH_BYTES} bytes"
    if version < _OLDEST_SSH:
        return warn(f"{room}: older than any that tk is tested with", version=list(version))
    return ok(room, version=list(version))


async def ssh_config(scene: CheckContext) -> Finding:
    """Check ssh's configuration for the login host: `ssh -G`."""
    if shutil.which("ssh") is None:
        return skip("there is no ssh here that could be asked: paramiko reads ~/.ssh/config")
    options = link_options(scene.settings)
    argv = SshCommand(options, batch=True).print_config(options.login.destination)
    done = await run_child(argv, timeout_s=9.0)
    if done.exit_code != 0:
        return fail(
            f"ssh refuses its configuration: {parse.shorten(done.error_text, 200)}",
            fix="correct the line of ssh_config that it names",
        )
    pairs = [line.partition(" ") for line in done.text.splitlines()]
    values = {key: value for key, _, value in reversed(pairs)}
    jumps = ",".join(str(jump) for jump in options.jumps)
    way = jumps or values.get("proxyjump") or values.get("proxycommand") or ""
    text = f"{values.get('user')}@{values.get('hostname')}:{values.get('port')}"
    text += f" through {parse.shorten(way)}" if way and way != "none" else ""
    data = {key: values.get(key) for key in ("user", "hostname", "port", "stricthostkeychecking")}
    data["way"] = way if way != "none" else None
    if values.get("stricthostkeychecking") in ("no", "false", "off"):
        return warn(
            f"{text}; host keys are not checked (tk checks them all the same)",
            fix=f"remove StrictHostKeyChecking no for {options.login} from your ssh_config",
            **data,
        )
    return ok(text, **data)


async def rsync(scene: CheckContext) -> Finding:
    """Check this machine's rsync."""
    from tunnelkit.mirror.transfer.rsync import rsync_defect

    if shutil.which("rsync") is None:
        return warn("none here: files go by a slower tar stream")
    done = await run_child(["rsync", "--version"], timeout_s=5.0)
    first = parse.shorten((done.text or done.error_text).partition("\n")[0])
    defect = rsync_defect(done.text + done.error_text)
    if defect is not None:
        return warn(f"{defect} here ({first}): files go by a slower tar stream")
    return ok(first)


async def file_events(scene: CheckContext) -> Finding:
    """Check the source of file events."""
    from watchdog.observers import Observer

    kind = str(getattr(Observer, "__name__", Observer))
    version = metadata.version("watchdog")
    text = f"{kind.removesuffix('Observer').lower()}, watchdog {version}"
    if "Polling" in kind:
        return warn(f"{text}: changes are found by looking, late", kind=kind)
    return ok(text, kind=kind)


async def inotify(scene: CheckContext) -> Finding:
    """Compare the kernel's limit of watches with the project's directories (Linux)."""
    settings = scene.settings
    now = limits(str(scene.system / "sys"))
    watches = {name: value for name, value in now.items() if name.endswith("_watches")}
    if not watches:
        return skip("this system has no inotify")
    roots = [(spec.local_dir, spec.exclude) for spec in settings.mirror_specs()]
    count = await in_thread(lambda: sum(directories(root, list(lines)) for root, lines in roots))
    taken = await in_thread(lambda: watches_taken(scene.system))
    name = min(watches, key=watches.__getitem__)
    limit = watches[name]
    # A session that is up has the project's watches already.
    wanted = taken if scene.status is not None else taken + count
    text = f"{count} directories to watch, {taken} watches in use, of {limit} ({name})"
    data = {"directories": count, "taken": taken, "limit": limit}
    if wanted >= limit * _SAFE_PART:
        advice = max(1_048_576, 2 * limit)
        return warn(
            f"{text}: too few",
            fix=f"sudo sysctl {name}={advice}, or exclude what needs no mirror",
            **data,
        )
    return ok(text, **data)


def directories(root: str, exclude: list[str]) -> int:
    """Return the number of directories that the mirror would scan (blocking)."""
    scan = Scanner(root, IgnoreRules.from_exclude(exclude)).scan()
    return 1 + sum(entry.kind == DIR for entry in scan.entries.values())


def watches_taken(system: Path) -> int:
    """Count the watches of all readable processes: the limit is per user (blocking)."""
    count = 0
    for process in system.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if process.stat().st_uid != os.getuid():
                continue
            for fd in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    if "inotify" in os.readlink(fd):
                        info = (process / "fdinfo" / fd.name).read_text()
                        count += info.count("\ninotify ") + info.startswith("inotify ")
    return count


async def editor_port(scene: CheckContext) -> Finding:
    """Check that the port of F5 is free, or the session's."""
    if scene.status is not None:
        return ok(f"127.0.0.1:{_port(scene)} is the session's")
    port = _port(scene)
    if await in_thread(lambda: local_ports.is_free(port)):
        return ok(f"127.0.0.1:{port} is free")
    by = await in_thread(lambda: local_ports.owner(port))
    who = f"{by.program} (pid {by.pid})" if by is not None else "another program"
    return warn(f"127.0.0.1:{port} is taken by {who}: tk up takes the next that is free")


def _port(scene: CheckContext) -> int:
    """Return the session's port if one is up: it may differ from the setting."""
    if scene.status is not None:
        return int(scene.status["debug_port"])
    return scene.settings.debug.port


async def editor_files(scene: CheckContext) -> Finding:
    """Check VS Code's task and launch configuration, with the right port."""
    folder, port = scene.project_dir / ".vscode", _port(scene)
    if not folder.is_dir():
        return skip("no .vscode here: `tk vscode` writes it (or see `tk help editors`)")
    tasks = [one.get("label") for one in listed(folder / "tasks.json", "tasks")]
    attach = next(
        (
            one
            for one in listed(folder / "launch.json", "configurations")
            if one.get("name") == ATTACH_NAME
        ),
        None,
    )
    if attach is None or READY_LABEL not in tasks:
        lacking = ATTACH_NAME if attach is None else READY_LABEL
        return warn(f"{folder} has no {lacking!r}: F5 does not go to the node")
    connect = attach.get("connect")
    found = connect.get("port") if isinstance(connect, dict) else None
    if found != port:
        return warn(f"launch.json attaches to port {found}, the session listens on {port}")
    return ok(f"task {READY_LABEL!r} and launch {ATTACH_NAME!r}, port {port}")
