"""What is wrong around the connection: a local port, the name service."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from tests.support.login_rig import LoginHost, debugging, project_by
from tests.support.tkrig import Project


async def test_a_taken_debug_port_names_its_owner_and_launch_json_follows(
    project: Project,
) -> None:
    launch = project.dir / ".vscode" / "launch.json"
    wanted = project.port
    await project.tk("vscode")
    launch.write_text(launch.read_text().replace("{", "{ // mine", 1))
    with socket.create_server(("127.0.0.1", wanted)):
        done = await project.tk("up", "node1", "--cpus", "2")
        assert f"port {wanted} is taken by" in done.err and f"(pid {os.getpid()})" in done.err
        status = await project.status()
        project.port = status["debug_port"]
        assert wanted < project.port <= wanted + 20
        assert f'"port": {project.port}' in launch.read_text() and "// mine" in launch.read_text()
        async with debugging(project, up=False):
            pass
        await project.tk("down")
    # The next session has the wanted one again, and F5 finds it.
    project.port = wanted
    await project.tk("up", "node1", "--cpus", "2")
    assert f'"port": {wanted}' in launch.read_text()


_OWN_NAMES = """\
mount --bind "$1" /etc/resolv.conf && mount --bind "$2" /etc/nsswitch.conf &&
  mount --bind "$3" /etc/hosts && shift 3 && exec "$@"
"""
_LOGIN = "login.example.test"


class Names:
    """A laptop's name service of its own: a hosts file, and behind it a server that is silent."""

    def __init__(self, directory: Path) -> None:
        self._silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._silent.bind(("127.0.0.54", 53))
        except OSError as error:
            self._silent.close()
            pytest.skip(f"no name server can be put on port 53: {error}")
        self.hosts = directory / "hosts"
        resolv, nsswitch = directory / "resolv.conf", directory / "nsswitch.conf"
        # The first answer would be waited for 10 s, then again; too long for a test.
        resolv.write_text("nameserver 127.0.0.54\noptions timeout:3 attempts:2\n")
        nsswitch.write_text("hosts: files dns\npasswd: files\ngroup: files\n")
        self.know(True)
        files = (str(resolv), str(nsswitch), str(self.hosts))
        self.enter = ("unshare", "--mount", "sh", "-c", _OWN_NAMES, "sh", *files)
        if subprocess.run([*self.enter, "true"], capture_output=True, check=False).returncode:
            self.close()
            pytest.skip("this root may not mount (a container without CAP_SYS_ADMIN)")

    def know(self, known: bool) -> None:
        """Whether the hosts file has the login host; in place, for it is mounted."""
        line = f"127.0.0.1 {_LOGIN}\n" if known else ""
        self.hosts.write_text(f"127.0.0.1 localhost\n{line}")

    def close(self) -> None:
        self._silent.close()


@pytest.fixture
def names(tmp_path: Path) -> Iterator[Names]:
    made = Names(tmp_path)
    yield made
    made.close()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a process its own resolver")
async def test_a_name_service_that_hangs_is_bounded_and_tk_status_answers(
    login: LoginHost, names: Names
) -> None:
    login.write_client_config(host=_LOGIN)
    login.lab = replace(login.lab, enter=names.enter)
    async with project_by(login) as project, debugging(project):
        names.know(False)
        login.cut()

        async def reconnecting() -> str:
            while (status := await project.status())["state"] != "reconnecting":
                await asyncio.sleep(0.1)
            assert status["attention"] is None, "it may pass: nobody has to do anything"
            return str(status["detail"])

        await asyncio.wait_for(reconnecting(), 30)
        asked = time.monotonic()
        while "can't be resolved now" not in await reconnecting():
            await asyncio.sleep(0.1)
        assert time.monotonic() - asked < 45
        names.know(True)
        await project.tk("auth")
    assert len(login.accepted()) == 2
