"""Pods of local processes: each has a directory of its own, and its processes carry its mark."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import time
import uuid
from pathlib import Path

from tunnelkit.lab.kube.wire import Json

_MARK = "TK_LAB_POD"
#: An image of this name has no Python: `sh`, `cat` and `sleep` are all there is.
NO_PYTHON = "nopython"
#: An image of this name gives a uid without a passwd entry its look: HOME can't be written.
NO_HOME = "nohome"
_POD_PROGRAMS = ("sh", "cat", "sleep", "readlink", "true")


def now() -> str:
    """Return the time as the API writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class Pod:
    """One pod. `run` starts its main process, `end` ends all that runs in it."""

    def __init__(self, root: Path, namespace: str, given: Json) -> None:
        metadata, spec = _object(given, "metadata"), _object(given, "spec")
        self.name = str(metadata.get("name"))
        self.uid = str(uuid.uuid4())
        self.root = root / self.name
        containers = spec.get("containers")
        first = containers[0] if isinstance(containers, list) and containers else {}
        self.container: Json = first if isinstance(first, dict) else {}
        self.gone = asyncio.Event()
        #: processes that an exec is starting: they do not carry the mark yet
        self.starting = 0
        #: True while nothing may be started in it
        self.is_killed = False
        self._main: asyncio.subprocess.Process | None = None
        self._watch: asyncio.Task[None] | None = None
        self._restarts = 0
        self._last_state: Json = {}
        # What another pod of this name has left.
        shutil.rmtree(self.root, ignore_errors=True)
        self.json: Json = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                **metadata,
                "namespace": namespace,
                "uid": self.uid,
                "creationTimestamp": now(),
            },
            "spec": {"containers": [{"name": "main", "image": "standin"}], **spec},
            "status": {"phase": "Pending"},
        }

    @property
    def status(self) -> Json:
        """The pod's status, to be changed in place."""
        return _object(self.json, "status")

    @property
    def container_names(self) -> list[str]:
        """The names of its containers, of which only the first one runs."""
        listed = _object(self.json, "spec").get("containers")
        found = listed if isinstance(listed, list) else []
        return [str(one.get("name")) for one in found if isinstance(one, dict)]

    def environment(self) -> dict[str, str]:
        """Return what a process in this pod has for an environment."""
        image = str(self.container.get("image"))
        path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
        if NO_PYTHON in image:
            path = str(self.root / "bin")
        home = "/proc/no-home" if NO_HOME in image else str(self.root / "home")
        env = {"PATH": path, "HOME": home, "TMPDIR": str(self.root / "tmp"), "LANG": "C.UTF-8"}
        given = self.container.get("env")
        for one in given if isinstance(given, list) else ():
            named = "metadata.name" in str(one.get("valueFrom"))
            env[str(one.get("name"))] = self.name if named else str(one.get("value", ""))
        # In place of the mounts that a real pod has.
        env["TK_DIR"] = str(self.root / "tk")
        env["HOSTNAME"] = self.name
        env[_MARK] = self.uid
        return env

    @property
    def cwd(self) -> Path:
        """The directory in which a process starts."""
        return self.root / "work"

    async def run(self) -> None:
        """Start the main process; the pod is Running then."""
        for name in ("home", "tmp", "work", "bin"):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        for program in _POD_PROGRAMS:
            for directory in ("/usr/bin", "/bin"):
                link = self.root / "bin" / program
                if not link.exists() and Path(directory, program).exists():
                    link.symlink_to(Path(directory, program))
        command = self.container.get("command")
        argv = (
            [str(word) for word in command] if isinstance(command, list) else ["sleep", "9999999"]
        )
        log = (self.root / "log").open("wb")
        with log:
            self._main = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.cwd,
                env=self.environment(),
                start_new_session=True,
            )
        self.is_killed = False
        self._state({"running": {"startedAt": now()}}, "Running", is_ready=True)
        self._watch = asyncio.create_task(self._until_ended(self._main))

    async def _until_ended(self, main: asyncio.subprocess.Process) -> None:
        code = await main.wait()
        self.is_killed = True
        await self.kill_all()
        status = 128 - code if code < 0 else code
        ended = {
            "exitCode": status,
            "reason": "Error" if code else "Completed",
            "finishedAt": now(),
        }
        self._state({"terminated": ended}, "Failed" if code else "Succeeded", is_ready=False)
        self.gone.set()

    def _state(self, state: Json, phase: str, *, is_ready: bool) -> None:
        self.status.update(
            phase=phase,
            podIP="127.0.0.1",
            startTime=now(),
            containerStatuses=[
                {
                    "name": self.container.get("name", "main"),
                    "ready": is_ready,
                    "restartCount": self._restarts,
                    "containerID": f"standin://{self.uid}-{self._restarts}",
                    "image": self.container.get("image", "standin"),
                    "imageID": "",
                    "state": state,
                    "lastState": self._last_state,
                }
            ],
        )

    async def restart(self, terminated: Json) -> None:
        """End the container as `terminated` says, and start it again, with its disk empty."""
        await self._kill_main()
        self._restarts, self._last_state = self._restarts + 1, {"terminated": terminated}
        shutil.rmtree(self.root, ignore_errors=True)
        await self.run()

    async def fail(self, status: Json) -> None:
        """End the pod, which stays there with that status."""
        await self._kill_main()
        self.status.update(status)

    async def _kill_main(self) -> None:
        """Kill all processes, without the status that this would have."""
        self.is_killed = True
        if self._watch is not None:
            self._watch.cancel()
        await self.kill_all()
        if self._main is not None:
            await self._main.wait()
        self.gone.set()

    async def end(self, grace_s: float) -> None:
        """End the main process, by TERM and after `grace_s` by KILL, and all others with it."""
        if self._main is not None and self._main.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._main.pid, signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace_s):
                    await self.gone.wait()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._main.pid, signal.SIGKILL)
            await self.gone.wait()
        await self.kill_all()

    async def kill_all(self) -> None:
        """Kill every process that carries this pod's mark."""
        unseen = 0
        while unseen < 3:  # in the middle of an execve a process shows no environment
            found = self.processes()
            unseen = 0 if found or self.starting else unseen + 1
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(0.01)

    def processes(self) -> list[int]:
        """Return the live processes of this pod."""
        mark, found = f"{_MARK}={self.uid}".encode(), []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return found


def _object(parent: Json, key: str) -> Json:
    found = parent.setdefault(key, {})
    return found if isinstance(found, dict) else {}
