"""The agent on the login host is started while it may still be on its way there."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from tunnelkit import agent_zip
from tunnelkit.config.schema import ClusterSettings
from tunnelkit.session.agent.install import starting

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
