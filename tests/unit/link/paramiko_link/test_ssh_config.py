"""ssh_config as the paramiko link reads it: held against `ssh -G` where there is an ssh."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tunnelkit.errors import ConfigError
from tunnelkit.link.paramiko_link.ssh_config import ConfigFiles
from tunnelkit.link.shared.host_keys import EffectiveConfig
from tunnelkit.model import Hop


def files(tmp_path: Path, text: str, name: str = "config") -> ConfigFiles:
    path = tmp_path / name
    path.write_text(text)
    path.chmod(0o600)
    return ConfigFiles(path)


needs_ssh = pytest.mark.skipif(shutil.which("ssh") is None, reason="held against a real ssh")


def by_ssh(config: ConfigFiles, host: str) -> dict[str, str]:
    """Return ssh's own reading of the file."""
    argv = ["ssh", "-F", str(config.given), "-G", "--", host]
    text = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    return dict(line.split(" ", 1) for line in text.splitlines() if " " in line)


def test_a_host(tmp_path: Path) -> None:
    config = files(
        tmp_path,
        """
        Host login
          HostName %h.cluster.example
          Port 2222
          User ann
          IdentityFile ~/.ssh/%r@%n
          CertificateFile /certs/%h.pub
          UserKnownHostsFile "/k/a b" /k/%k
          GlobalKnownHostsFile /dev/null
          IdentityAgent /run/%u.sock
          StrictHostKeyChecking no
          HashKnownHosts yes
        Host *
          User nobody
          Port 22
        """,
    )
    host = config.lookup("login")
    assert (host.hostname, host.port, host.user) == ("login.cluster.example", 2222, "ann")
    assert host.known_as == "[login.cluster.example]:2222"
    assert host.identity_files == (Path("~/.ssh/ann@login").expanduser(),)
    assert host.certificate_files == (Path("/certs/login.cluster.example.pub"),)
    assert host.known_hosts == (Path("/k/a b"), Path("/k/login"))
    assert host.identity_agent is not None and host.identity_agent.startswith("/run/")
    assert (host.strict, host.hash_known_hosts) == ("off", True)
    given_ = config.lookup("bob@login:2200")
    assert (given_.user, given_.port) == ("bob", 2200)
    assert config.lookup("[::1]:2201").hostname == "::1"


def test_match_and_the_first_value_win(tmp_path: Path) -> None:
    config = files(
        tmp_path,
        "Match originalhost gpu* user ann\n Port 1\nHost gpu1 !gpu2\n Port 2\nHost *\n Port 3\n",
    )
    assert config.lookup("ann@gpu1").port == 1
    assert config.lookup("bob@gpu1").port == 2
    assert config.lookup("gpu2").port == 3


def test_include_holds_where_its_block_holds(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.write_text("User inner\nHost other\n  Port 7\n")
    config = files(tmp_path, f"Host a\n  Include {tmp_path}/inn*\n  Port 5\nHost other\n  Port 6\n")
    assert (config.lookup("a").user, config.lookup("a").port) == ("inner", 5)
    assert config.lookup("other").port == 6, "the Include of another host's block has no say"
    assert config.lookup("other").user != "inner"


def test_the_way(tmp_path: Path) -> None:
    config = files(
        tmp_path,
        "Host node*\n  ProxyJump door,login\nHost door\n  ProxyJump gate\n"
        "Host ring\n  ProxyJump ring2\nHost ring2\n  ProxyJump ring\n"
        "Host none\n  ProxyJump none\n"
        "Host command\n  ProxyCommand nc %h %p\n  ProxyJump login\n"
        "Host direct\n  ProxyCommand none\nHost direct\n  ProxyJump login\n",
    )

    def names(login: str, *jumps: str) -> list[str]:
        return [host.name for host in config.way(login, [Hop(jump) for jump in jumps])]

    assert names("login") == ["login"]
    assert names("node1") == ["gate", "door", "login", "node1"]
    assert names("node1", "login") == ["login", "node1"]
    assert names("login", "door") == ["gate", "door", "login"]
    assert names("none") == ["none"]
    assert names("command") == ["command"]
    assert names("direct") == ["direct"]
    with pytest.raises(ConfigError, match="more than"):
        names("ring")
    assert config.lookup("command").proxy_command == "nc command 22"


def test_what_ssh_would_refuse(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        files(tmp_path, "Host a\n  StrictHostKeyCheking yes\n").lookup("a")
    assert "line 2" in (caught.value.cause or "")
    config = files(tmp_path, "IgnoreUnknown Strict*Cheking,Other\nStrictHostKeyCheking yes\n")
    assert config.lookup("a").strict == "ask"
    with pytest.raises(ConfigError):
        ConfigFiles(tmp_path / "nowhere").lookup("a")
    with pytest.raises(ConfigError):
        files(tmp_path, "Port many\n").lookup("a")


_NAMES = ("login", "node1", "node2")
_BLOCK = st.tuples(
    st.lists(st.sampled_from([*_NAMES, "node*", "!node2", "*", "log?n"]), min_size=1, max_size=3),
    st.lists(
        st.sampled_from(
            [
                "HostName 10.0.0.1",
                "HostName %h.example",
                "Port 2222",
                "Port=2022",
                "User ann",
                "HostKeyAlias alias",
                "StrictHostKeyChecking accept-new",
                "StrictHostKeyChecking no",
                "UserKnownHostsFile /tmp/kh /tmp/kh2",
                "ProxyJump login",
            ]
        ),
        max_size=4,
    ),
)


@needs_ssh
@pytest.mark.parametrize("header", ["Host gpu1", "Match originalhost gpu*"])
@pytest.mark.parametrize("command", ["none", "None", "nc -X 5 %h %p"])
@pytest.mark.parametrize("jump", ["bastion", "gate,bastion"])
@pytest.mark.parametrize("order", [1, -1])
def test_the_first_of_proxy_command_and_proxy_jump_wins(
    tmp_path: Path, header: str, command: str, jump: str, order: int
) -> None:
    first, last = [f"ProxyCommand {command}", f"ProxyJump {jump}"][::order]
    for text in (
        f"{header}\n  {first}\nHost *\n  {last}\n",
        f"Host *\n  {first}\n{header}\n  {last}\n",
        f"{header}\n  {first}\n  {last}\n",
    ):
        config = files(tmp_path, text)
        said = by_ssh(config, "gpu1")
        ours = config.lookup("gpu1")
        assert ",".join(ours.proxy_jump) == said.get("proxyjump", ""), text
        # ssh puts the tokens in later.
        theirs = said.get("proxycommand", "").replace("%h", "gpu1").replace("%p", "22")
        assert (ours.proxy_command or "") == theirs, text


@needs_ssh
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(_BLOCK, max_size=4), st.sampled_from(_NAMES))
def test_as_ssh_reads_it(tmp_path: Path, blocks: list[tuple[list[str], list[str]]], host: str):
    lines = []
    for patterns, settings_ in blocks:
        lines += [f"Host {' '.join(patterns)}", *(f"  {setting}" for setting in settings_)]
    config = files(tmp_path, "\n".join(lines) + "\n")
    argv = ["ssh", "-F", str(config.given), "-G", "--", host]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:  # it jumps through itself, which ssh refuses to print
        assert "jumphost loop" in done.stderr.lower(), done.stderr
        return
    theirs, ours = EffectiveConfig.parse(done.stdout), config.lookup(host)
    assert (ours.hostname, ours.port) == (theirs.hostname, theirs.port)
    assert ours.known_as == theirs.known_as
    assert (ours.strict == "off") == theirs.is_off
    said = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    assert ours.user == said["user"]
    assert ",".join(ours.proxy_jump) == said.get("proxyjump", "")
    users = said["userknownhostsfile"].split()
    assert [str(path) for path in ours.known_hosts][: len(users)] == [
        str(Path(name).expanduser()) for name in users
    ]
