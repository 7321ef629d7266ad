"""Layers, origins, and what is refused and how it is told."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.config import profiles
from tunnelkit.config.load import find_project, load, user_config_dir
from tunnelkit.config.schema import KEYS, Settings
from tunnelkit.errors import ConfigError
from tunnelkit.model import Hop, LocalForward, MirrorSpec, ResourceRequest


class Rig:
    """A project directory, a user config directory and an environment of their own."""

    def __init__(self, root: Path) -> None:
        self.project = root / "proj"
        self.clusters = root / "conf" / "clusters"
        self.project.mkdir()
        self.clusters.mkdir(parents=True)
        self.environ = {"TK_CONFIG_DIR": str(root / "conf")}

    def write(self, text: str) -> Path:
        path = self.project / "tunnelkit.toml"
        path.write_bytes(text.encode())
        return path

    def profile(self, name: str, text: str) -> Path:
        path = self.clusters / f"{name}.toml"
        path.write_text(text)
        return path

    def load(self, overrides: dict[str, object] | None = None, **environ: str) -> Settings:
        return load(self.project, overrides=overrides, environ=self.environ | environ)

    def refusal(self, text: str = "", **environ: str) -> str:
        if text:
            self.write(text)
        with pytest.raises(ConfigError) as caught:
            self.load(**environ)
        line = caught.value.one_line()
        assert "\n" not in line
        return line


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_defaults_without_any_file(rig: Rig) -> None:
    settings = rig.load()
    assert settings.config_file is None and settings.project_dir == rig.project
    assert settings.cluster.login is None and settings.cluster.scheduler == "auto"
    assert settings.debug.port == 40056 and settings.debug.on_disconnect == "restart"
    assert settings.mirror.remote == "~/tk/proj"
    assert {str(origin) for origin in settings.origins.values()} == {"default"}
    with pytest.raises(ConfigError, match="no login host"):
        settings.require_login()


FULL = """\
profile = "site"
forwards = ["8888", "6006:localhost:16006"]

[cluster]
login = "me@login.example.org"
jump = ["bastion", "me@second"]
ssh_config = "conf/ssh"
prologue = \"\"\"
module load cuda
[debug]
port = 1
\"\"\"

[allocation]
gpus = 2
time = "1-00:00:00"
extra = [
  "--exclusive",  # time = 3
]

[mirror]
exclude = ["data/", "*.ckpt"]
"""


def test_all_values_and_their_lines(rig: Rig) -> None:
    path = rig.write(FULL)
    site = rig.profile("site", "[allocation]\npartition = 'gpu'\ngpus = 1\n[debug]\nport = 50000\n")
    settings = load(rig.project / "sub" / "dir", environ=rig.environ)
    assert settings.profile == "site" and settings.config_file == path
    assert settings.cluster.login == Hop("me@login.example.org")
    assert settings.cluster.jump == (Hop("bastion"), Hop("me@second"))
    assert settings.cluster.ssh_config == rig.project / "conf" / "ssh"
    assert settings.forwards == (
        LocalForward(8888, "127.0.0.1", 8888),
        LocalForward(6006, "localhost", 16006),
    )
    assert settings.allocation.request("node4") == ResourceRequest(
        node="node4", gpus=2, time_limit_s=86400, partition="gpu", extra=("--exclusive",)
    )
    assert settings.mirror_specs() == (
        MirrorSpec(str(rig.project), "~/tk/proj", ("data/", "*.ckpt")),
    )
    lines = {name: str(origin) for name, origin in settings.origins.items()}
    assert lines["profile"] == f"{path}:1"
    assert lines["cluster.login"] == f"{path}:5"
    assert lines["cluster.prologue"] == f"{path}:8"
    assert lines["allocation.gpus"] == f"{path}:15"
    assert lines["allocation.extra"] == f"{path}:17"
    assert lines["mirror.exclude"] == f"{path}:22"
    assert lines["allocation.partition"] == f"{site}:2"
    assert lines["debug.port"] == f"{site}:5"
    assert settings.origins["debug.port"].kind == "profile"


@given(st.sets(st.sampled_from(["profile", "project", "environment", "flag"])))
def test_the_highest_layer_wins(tmp_path_factory: pytest.TempPathFactory, layers: set[str]) -> None:
    rig = Rig(tmp_path_factory.mktemp("rig"))
    ports = {"default": 40056, "profile": 1001, "project": 1002, "environment": 1003, "flag": 1004}
    rig.profile("p", "[debug]\nport = 1001\n" if "profile" in layers else "")
    rig.write('profile = "p"\n' + ("[debug]\nport = 1002\n" if "project" in layers else ""))
    environ = {"TK_DEBUG_PORT": "1003"} if "environment" in layers else {}
    overrides: dict[str, object] = {"debug.port": 1004 if "flag" in layers else None}
    settings = rig.load(overrides, **environ)
    highest = [one for one in ports if one == "default" or one in layers][-1]
    assert settings.debug.port == ports[highest]
    assert settings.origins["debug.port"].kind == highest


def test_environment_and_flags_are_read_as_text(rig: Rig) -> None:
    settings = rig.load(
        {"allocation.time": "90m", "allocation.gpus": "2", "forwards": ["7000"]},
        TK_CLUSTER_LOGIN="me@host",
        TK_CLUSTER_JUMP="a, b",
        TK_MIRROR_ENABLED="no",
        TK_MIRROR_EXCLUDE='["a,b", "c"]',
        TK_ALLOCATION_EXTRA="--exclusive --gres=gpu:1,shard:2",
        TK_ALLOCATION_CPUS="",
        TK_OTHER="x",
        TK_LAB_DIR="/x",
    )
    assert settings.allocation.time_limit_s == 5400 and settings.allocation.gpus == 2
    assert settings.cluster.jump == (Hop("a"), Hop("b"))
    assert settings.mirror.enabled is False and settings.mirror.exclude == ("a,b", "c")
    assert settings.allocation.extra == ("--exclusive", "--gres=gpu:1,shard:2")
    assert settings.allocation.cpus is None
    assert str(settings.origins["cluster.login"]) == "TK_CLUSTER_LOGIN"
    assert str(settings.origins["allocation.time"]) == "--time"
    assert str(settings.origins["forwards"]) == "--forward"


def test_relative_ssh_config_starts_where_it_is_written(rig: Rig) -> None:
    rig.profile("p", "[cluster]\nssh_config = 'c'\n")
    assert rig.load(TK_PROFILE="p").cluster.ssh_config == rig.clusters / "c"
    home = os.path.expanduser("~/c")
    assert rig.load(TK_CLUSTER_SSH_CONFIG="~/c").cluster.ssh_config == Path(home)


def test_the_profile_of_the_highest_layer_is_the_only_one_read(rig: Rig) -> None:
    rig.write('profile = "missing"')
    rig.profile("b", "[cluster]\nlogin = 'b'\n")
    assert "no cluster profile 'missing'" in rig.refusal()
    assert rig.load(TK_PROFILE="b").cluster.login == Hop("b")
    assert rig.load({"profile": "b"}, TK_PROFILE="missing").profile == "b"


def test_own_profiles_come_before_shipped_ones(rig: Rig) -> None:
    assert rig.load(TK_PROFILE="plain-ssh").cluster.scheduler == "none"
    rig.profile("plain-ssh", "[cluster]\nscheduler = 'slurm'\n")
    assert rig.load(TK_PROFILE="plain-ssh").cluster.scheduler == "slurm"


def test_json_round_trip(rig: Rig) -> None:
    rig.write(FULL)
    rig.profile("site", "")
    settings = rig.load(
        {
            "mirror.enabled": False,
            "shared_forwards": ["7001:70"],
            "cluster.directory": "/scratch/tk",
            "cluster.context": "me/api:6443",
            "cluster.namespace": "mine",
            "cluster.kubectl": "oc",
            "cluster.container": "train",
            "allocation.black_box": False,
            "allocation.pod": "-l app=train",
            "allocation.image": "ghcr.io/me/train:12",
            "allocation.manifest": "job.yaml",
            "allocation.queue": "team-a",
            "allocation.gpu_resource": "amd.com/gpu",
            "debug.read_ahead": False,
        }
    )
    again = Settings.from_json(json.loads(json.dumps(settings.to_json())))
    assert again == settings
    assert set(settings.to_json()["values"]) == set(KEYS)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "change", [{"cluster.login": "-oProxyCommand=x"}, {"allocation.nodes": None}]
)
def test_handed_over_settings_are_checked_again(rig: Rig, change: dict[str, Any]) -> None:
    data: dict[str, Any] = rig.load().to_json()
    data["values"] |= change
    with pytest.raises(ConfigError, match="handed-over"):
        Settings.from_json(data)
    with pytest.raises(ConfigError, match="handed-over"):
        Settings.from_json({})


def test_handed_over_keys_of_another_version_are_ignored(rig: Rig) -> None:
    data: dict[str, Any] = rig.load().to_json()
    data["values"] |= {"nope": 1}
    assert Settings.from_json(data) == rig.load()


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[cluster]\nlogn = 'x'", [":2: unknown key 'logn' in [cluster]", "did you mean 'login'?"]),
        ("[clutser]\nlogin = 'x'", [":1: unknown section [clutser]", "did you mean [cluster]?"]),
        ("[quux]\n", [":1: unknown section [quux]", "[cluster], [allocation], [mirror], [debug]"]),
        ("\nport = 1", [":2: unknown key 'port'", "did you mean 'port' under [debug]?"]),
        ("[debug]\nlogin = 'x'", ["unknown key 'login' in [debug]", "under [cluster]"]),
        ("[cluster]\nforwards = []", ["'forwards' at the top of the file"]),
        ("[allocation]\nzzz = 1", ["known keys: partition, account"]),
        ("[mirror]\nexcludes = []", ["did you mean 'exclude'?"]),
        ("[mirror.exclude]\na = 1", [":1: bad value for mirror.exclude", "expected a list"]),
        ("cluster = 'x'", [":1: cluster is a section", "write [cluster]"]),
        ("[[cluster]]\nlogin = 'x'", ["cluster is a section"]),
        ("[debug]\nport = '1'", [":2: bad value for debug.port", "got text"]),
        ("[debug]\nport = 0", ["a number from 1 to 65535"]),
        ("[debug]\nport = true", ["got true/false"]),
        ("[debug]\njust_my_code = 'yes'", ["expected true or false"]),
        ("[cluster]\nlogin = '-oProxyCommand=x'", ["'-oProxyCommand=x' is not a host name"]),
        ("[cluster]\njump = ['ok', '-x']", ["'-x' is not a host name"]),
        ("[cluster]\nscheduler = 'slrum'", ["'slrum' is not known", "pbs, torque, none"]),
        ("[cluster]\npython = '-c'", ["starts with '-'"]),
        ('[cluster]\nprologue = "true\\n#SBATCH -p x"', ["'#SBATCH -p x' would be read"]),
        ('[allocation]\npartition = "a\\nb"', ["holds a newline"]),
        ('[allocation]\naccount = "a b"', ["holds a space"]),
        ('[allocation]\nextra = ["a\\u0000"]', ["control character"]),
        ("[allocation]\nmem = 16", ["expected text, got a number"]),
        ("[allocation]\nmem = '16 gigs'", ["not an amount of memory"]),
        ("[allocation]\ncpus = 0", ["0 is out of range"]),
        ("[allocation]\ntime = 02:00:00", ["got an unquoted date or time", '"2:00:00"']),
        ("[mirror]\nremote = '/'", ["it is the root"]),
        ("[mirror]\nremote = '~'", ["your whole home"]),
        ("[mirror]\nremote = '~/./'", ["no directory of its own"]),
        ("[mirror]\nremote = '~/a/../..'", ["'..'"]),
        ("[mirror]\nremote = 'code'", ["neither absolute"]),
        ("forwards = ['1:2:3:4']", [":1: bad value for forwards", "not a forward"]),
        ("forwards = [8888, '8888:9']", ["wants local port 8888", "already that of 8888"]),
        ("forwards = [40056]", ["which is the debug port"]),
        ("profile = '../x'", ["not a profile's name"]),
        ("profile = 'lab'", ["only an explanation", "tk lab up"]),
        ("profile = 'slurm-sit'", ["did you mean 'slurm-site'?"]),
        ("[cluster\n", [":1:9: not valid TOML"]),
        ("[cluster]\nlogin = \n", [":2:9: not valid TOML", "Invalid value"]),
        ("a = 1\na = 2\n", [":2:"]),
        ("a = [1,", [":1:8: not valid TOML"]),
    ],
)
def test_refused(rig: Rig, text: str, parts: list[str]) -> None:
    line = rig.refusal(text)
    assert str(rig.project / "tunnelkit.toml") in line
    for part in parts:
        assert part in line


def test_not_utf8(rig: Rig) -> None:
    (rig.project / "tunnelkit.toml").write_bytes(b'[cluster]\nlogin = "\xff"\n')
    assert "tunnelkit.toml:2:10: not UTF-8" in rig.refusal()


def test_windows_line_ends_and_bom(rig: Rig) -> None:
    rig.write("\ufeff[debug]\r\nport = 5\r\n")
    settings = rig.load()
    assert settings.debug.port == 5 and settings.origins["debug.port"].line == 2


@pytest.mark.parametrize(
    ("variable", "value", "part"),
    [
        ("TK_CLUSTER_LOGN", "x", "did you mean TK_CLUSTER_LOGIN?"),
        (
            "TK_DEBUG_PORT",
            "x",
            "TK_DEBUG_PORT: bad value for debug.port: 'x' is not a whole number",
        ),
        ("TK_MIRROR_ENABLED", "maybe", "neither true nor false"),
        ("TK_MIRROR_EXCLUDE", "[1", "is not a list"),
        ("TK_ALLOCATION_EXTRA", "'", "No closing quotation"),
        ("TK_PROFILE", "nope", "TK_PROFILE: there is no cluster profile 'nope'"),
    ],
)
def test_refused_variables(rig: Rig, variable: str, value: str, part: str) -> None:
    assert part in rig.refusal(**{variable: value})


def test_a_profile_cant_choose_a_profile(rig: Rig) -> None:
    path = rig.profile("p", "\nprofile = 'q'\n")
    assert f"{path}:2: a profile can't choose" in rig.refusal(TK_PROFILE="p")


def test_unknown_override_is_an_error(rig: Rig) -> None:
    with pytest.raises(ConfigError, match="unknown key 'gpu'"):
        rig.load({"allocation.gpu": 1})


def test_explicit_config_file(rig: Rig, tmp_path: Path) -> None:
    other = tmp_path / "other" / "my.toml"
    other.parent.mkdir()
    other.write_text("[debug]\nport = 7\n")
    settings = load(rig.project, config_file=Path("../other/my.toml"), environ=rig.environ)
    assert (settings.debug.port, settings.project_dir) == (7, other.parent)
    with pytest.raises(ConfigError, match="nope can't be read"):
        load(rig.project, config_file=tmp_path / "nope", environ=rig.environ)


def test_found_upward(rig: Rig) -> None:
    assert find_project(rig.project / "a" / "b") is None
    rig.write("")
    assert find_project(rig.project / "a" / "b") == rig.project


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's file")
def test_a_strangers_file_above_is_refused(rig: Rig) -> None:
    path = rig.write("")
    os.chown(path, 12345, -1)
    assert f"{path} belongs to another user" in rig.refusal()
    os.chown(rig.project, 12345, -1)  # root at work in somebody's own tree
    assert rig.load().config_file == path


def test_user_config_dir(tmp_path: Path) -> None:
    assert user_config_dir({"TK_CONFIG_DIR": str(tmp_path)}) == tmp_path
    assert user_config_dir({}).is_absolute()


def test_every_shipped_profile_reads(rig: Rig) -> None:
    names = [path.stem for path in profiles.shipped_dir().glob("*.toml")]
    assert {"lab", "slurm-site", "pbs-site", "plain-ssh"} <= set(names)
    for name in ("slurm-site", "plain-ssh"):
        settings = rig.load(TK_PROFILE=name)
        assert settings.cluster.login is None, "a shipped profile must not name a host"


@pytest.mark.parametrize("name", ["slurm-site", "plain-ssh"])
def test_commented_examples_of_shipped_profiles_hold(rig: Rig, name: str) -> None:
    text = (profiles.shipped_dir() / f"{name}.toml").read_text()
    start = text.index("\n[cluster]")
    live = []
    for line in text[start:].splitlines():
        bare = line.removeprefix("# ")
        is_example = bare.split(" = ")[0].isidentifier() and " = " in bare
        live.append(bare if is_example or '"""' in bare or "module load" in bare else line)
    live = [line.removeprefix("# ") if "source ~" in line else line for line in live]
    rig.write("\n".join(live))
    settings = rig.load()
    assert settings.require_login() and "activate" in settings.cluster.prologue
