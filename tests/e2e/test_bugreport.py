"""`tk bugreport` after a session in which secrets were about."""

from __future__ import annotations

import getpass
import json
import tarfile
from pathlib import Path

from tests.support.tkrig import Project
from tunnelkit.errors import ExitCode

_TOKEN = "ghp_1234567890abcdefghijABCDEFGHIJ123456"
_PASSWORD = "correct-horse-battery"
_VALUE = "value-of-a-variable"
PROGRAM = f"""
print("token", "{_TOKEN}")
print("password: {_PASSWORD}")
print("login node1.cluster.example.org by carol@gate.example.org from /home/carol/x")
"""


def unpacked(path: Path) -> dict[str, str]:
    assert path.stat().st_mode & 0o777 == 0o600
    files = {}
    with tarfile.open(path) as archive:
        for member in archive.getmembers():
            assert not member.uname and not member.uid
            data = archive.extractfile(member)
            assert data is not None
            files[Path(member.name).name] = data.read().decode()
    return files


async def test_a_report_tells_what_is_needed_and_no_names_or_secrets(project: Project) -> None:
    project.write("leak.py", PROGRAM)
    prologue = f"export MY_API_KEY={_TOKEN}"
    project.configure(f'[cluster]\nprologue = "{prologue}"\n')
    project.env["WANDB_API_KEY"] = _VALUE
    await project.up("node1")
    loop = await project.loop("python", "leak.py")
    client = await project.f5(file="leak.py")
    await loop.line("carol")
    await client.drop()
    (project.dir / "tunnelkit.toml").open("a").write(f"# {_VALUE}\n")
    path = project.base / "report.tar.gz"
    done = await project.tk("bugreport", "-o", str(path))

    files = unpacked(path)
    everything = "\n".join(files.values())
    for planted in (_TOKEN, _PASSWORD, _VALUE, "carol", "gate.example", "node1", "/home/carol"):
        assert planted not in everything, planted
    assert str(project.lab.home) not in everything
    if getpass.getuser() != "root":
        assert getpass.getuser() not in everything

    assert {"README.txt", "versions.json", "doctor.json", "config.json", "status.json"} <= set(
        files
    )
    assert {"session.log", "loop.log", "events.jsonl"} <= set(files)
    events = [json.loads(line) for line in files["events.jsonl"].splitlines()]
    assert {"state", "route", "message"} <= {one["kind"] for one in events}
    states = [one["state"] for one in events if one["kind"] == "state"]
    assert states[0] == "connecting" and states[-1] == "ready"
    assert json.loads(files["doctor.json"])["forwards"]["status"] == "ok"
    assert json.loads(files["config.json"])["debug.port"]["value"] == project.port
    assert json.loads(files["status.json"])["state"] == "ready"
    assert "agent: job" in files["session.log"]
    for name in files:
        assert name in done.out
    assert "read it before you send it" in done.out and "values taken out" in done.out
    assert "Read it before you send it" in files["README.txt"]

    again = await project.tk("bugreport", "-o", str(path), code=ExitCode.USAGE)
    assert "already there" in again.err
    await loop.quit()


async def test_a_report_of_what_never_came_up(project: Project) -> None:
    project.configure("prot = 1\n")
    home = project.base / "home of the laptop"
    home.mkdir()
    project.env["HOME"] = str(home)
    done = await project.tk("bugreport", "--no-program-output")
    assert not list(project.dir.glob("tk-bugreport-*"))  # the project is mirrored
    (path,) = home.glob("tk-bugreport-*.tar.gz")
    assert str(path) in done.out
    packages = json.loads(unpacked(path)["versions.json"])["packages"]
    assert packages["paramiko"] and packages["sshtunnel"]
    files = unpacked(path)
    assert json.loads(files["doctor.json"])["config"]["status"] == "fail"
    assert "loop.log" not in files
