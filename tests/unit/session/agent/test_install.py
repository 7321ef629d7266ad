"""The agent on the login host is started while it may still be on its way there."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tunnelkit import agent_zip, probe_zip
from tunnelkit.config.schema import ClusterSettings
from tunnelkit.errors import AllocationError
from tunnelkit.model import Completed
from tunnelkit.session.agent.install import install, starting

DEFAULT = ClusterSettings().directory


def start(
    home: Path, *words: str, path: str = os.environ["PATH"], directory: str = DEFAULT
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        starting(ClusterSettings(python=sys.executable, directory=directory), *words),
        env={"HOME": str(home), "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_it_waits_for_the_zip_to_come(tmp_path: Path) -> None:
    home = tmp_path / "a home"
    directory = home / ".cache" / "tunnelkit"
    directory.mkdir(parents=True)
    with start(home, "no such command") as process:
        time.sleep(0.3)
        assert process.poll() is None
        (directory / "new").write_bytes(agent_zip.build().data)
        (directory / "new").rename(directory / agent_zip.build().file_name)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 2 and said.startswith("usage: agent")


def test_it_does_not_wait_for_ever(tmp_path: Path) -> None:
    (tmp_path / "sleep").write_text("#!/bin/sh\n")
    (tmp_path / "sleep").chmod(0o755)
    with start(tmp_path, "files", path=f"{tmp_path}:{os.environ['PATH']}") as process:
        _, said = process.communicate(timeout=30)
    assert process.returncode == 66 and "did not come" in said


def test_it_does_not_wait_once_the_connection_is_over(tmp_path: Path) -> None:
    # The first wait tells: until then the shell may not have seen yet whose child it is.
    waits = tmp_path / "waits"
    os.mkfifo(waits)
    tells = f'[ ! -p "{waits}" ] || {{ : > "{waits}"; rm "{waits}"; }}'
    (tmp_path / "sleep").write_text(f"#!/bin/sh\n{tells}\nexec /bin/sleep 0.1\n")
    (tmp_path / "sleep").chmod(0o755)
    # As sshd's process for the connection, the inner shell is gone then, and was reaped.
    connection = f'sh -c "\\"\\$@\\" & : < \'{waits}\'; echo over" sh "$@"; :'
    words = [
        "sh",
        "-c",
        connection,
        "sh",
        *starting(ClusterSettings(python=sys.executable), "files"),
    ]
    env = {"HOME": str(tmp_path), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(words, env=env, capture_output=True, check=True, timeout=60)
    # Its pipes are closed now, and not because its patience was over.
    assert done.stdout == b"over\n" and done.stderr == b""


class Host:
    """A login host: runs each command here, in a home of its own."""

    name = "login"

    def __init__(self, home: Path, before: str = "") -> None:
        self._before = ["sh", "-c", f'{before} exec "$@"', "sh"]
        self._env = {"HOME": str(home), "PATH": os.environ["PATH"]}
        self.stored: list[int] = []

    async def run(
        self, argv: Sequence[str], *, node: str | None = None, stdin: bytes = b""
    ) -> Completed:
        if stdin:
            self.stored.append(len(stdin))
        done = subprocess.run(
            [*self._before, *argv], input=stdin, env=self._env, capture_output=True, check=False
        )
        return Completed(done.returncode, done.stdout, done.stderr)


async def test_the_probe_is_sent_with_the_agent_and_only_once(tmp_path: Path) -> None:
    host, cluster = Host(tmp_path), ClusterSettings(python=sys.executable)
    agent, probe = len(agent_zip.build().data), len(probe_zip.build().data)
    found = await install(host, cluster, probe=True)  # type: ignore[arg-type]
    assert host.stored == [agent + probe]
    assert Path(found.agent).read_bytes() == agent_zip.build().data
    assert Path(found.probe).read_bytes() == probe_zip.build().data
    await install(host, cluster, probe=True)  # type: ignore[arg-type]
    assert host.stored == [agent + probe]
    # Damaged, or of a session without a box.
    Path(found.probe).write_bytes(b"half")
    again = await install(host, cluster, probe=False)  # type: ignore[arg-type]
    assert again.probe == "" and host.stored == [agent + probe]
    await install(host, cluster, probe=True)  # type: ignore[arg-type]
    assert host.stored == [agent + probe, probe]


async def test_the_probe_runs_without_the_prologue_s_python(tmp_path: Path) -> None:
    host = Host(tmp_path)
    found = await install(host, ClusterSettings(python=sys.executable), probe=True)  # type: ignore[arg-type]
    for python in (sys.executable, "python-of-a-module"):
        argv = replace(found, python=python).probe_argv("nothing")
        done = await host.run(argv)
        assert done.exit_code == 2 and "probe: commands: box" in done.error_text


async def test_a_full_disk_is_told_in_one_line(tmp_path: Path) -> None:
    host = Host(tmp_path, "ulimit -f 8;")
    with pytest.raises(AllocationError) as caught:
        await install(host, ClusterSettings(python=sys.executable), probe=True)  # type: ignore[arg-type]
    assert "can't store the agent" in caught.value.one_line()
    assert "File too large" in str(caught.value.cause)
    assert "\n" not in str(caught.value.cause)
    assert not list((tmp_path / ".cache" / "tunnelkit").glob(".agent*"))
