"""`tk config`, `tk init` and `tk vscode` as people type them."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from tunnelkit.cli.commands.debug import vscode
from tunnelkit.cli.commands.debug.vscode import follow_port
from tunnelkit.cli.commands.start import init, trust
from tunnelkit.cli.commands.support import config
from tunnelkit.config.load import load
from tunnelkit.errors import ConfigError, ConnectionFailed, DebugError, TunnelkitError, UsageError

app = typer.Typer()
app.add_typer(config.app, name="config")
app.command("init")(init.init)
app.command("trust")(trust.trust)
app.command("vscode")(vscode.vscode)


class Tk:
    """Runs commands in a project directory, with an environment of its own."""

    def __init__(self, project: Path, detect: ModuleType) -> None:
        self.project = project
        self.detect = detect

    def __call__(self, *args: str) -> str:
        result = CliRunner().invoke(app, list(args))
        if result.exception is not None:
            raise result.exception
        return result.output

    def refusal(self, kind: type[TunnelkitError], *args: str) -> str:
        with pytest.raises(kind) as caught:
            self(*args)
        return caught.value.one_line()

    def toml(self) -> dict[str, Any]:
        return tomllib.loads((self.project / "tunnelkit.toml").read_text())


@pytest.fixture
def tk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tk:
    """The cluster's answers are the session room's business: here they are told by hand."""
    project = tmp_path / "proj"
    project.mkdir()
    for name in list(os.environ):
        if name.startswith("TK_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TK_CONFIG_DIR", str(tmp_path / "conf"))
    monkeypatch.setenv("TK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(project)
    detect = ModuleType("tunnelkit.session.connection.probe")
    detect.detect_scheduler = lambda settings, prompter: "slurm"  # type: ignore[attr-defined]
    detect.remote_root = lambda settings, prompter: "/home/me/tk/proj"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tunnelkit.session.connection.probe", detect)
    return Tk(project, detect)


def failing(error: TunnelkitError) -> Callable[..., str]:
    def call(settings: object, prompter: object) -> str:
        raise error

    return call


def test_show_tells_values_and_origins(tk: Tk, monkeypatch: pytest.MonkeyPatch) -> None:
    (tk.project / "tunnelkit.toml").write_text('[cluster]\nlogin = "me@host"\n')
    monkeypatch.setenv("TK_ALLOCATION_TIME", "90m")
    lines = tk("config", "show").splitlines()
    assert "\x1b" not in "".join(lines)
    rows = {line.split()[0]: line.split()[1:] for line in lines}
    assert rows["cluster.login"] == ['"me@host"', f"{tk.project}/tunnelkit.toml:2"]
    assert rows["allocation.time"] == ['"1:30:00"', "TK_ALLOCATION_TIME"]
    assert rows["debug.port"] == ["40056", "default"]
    assert rows["profile"] == ["-", "default"]
    starts = {line.index(line.split()[1]) for line in lines}
    assert len(starts) == 1, "the columns are aligned"


def test_show_json(tk: Tk) -> None:
    (tk.project / "tunnelkit.toml").write_text('forwards = ["8888"]\n')
    shown = json.loads(tk("config", "show", "--json"))
    assert shown["config_file"] == str(tk.project / "tunnelkit.toml")
    assert shown["values"]["forwards"] == {
        "value": ["8888:127.0.0.1:8888"],
        "origin": "project",
        "where": shown["config_file"],
        "line": 1,
    }
    assert shown["values"]["cluster.login"]["value"] is None


def test_show_with_a_profile(tk: Tk) -> None:
    assert "profile " in tk("config", "show", "--profile", "slurm-site")
    assert "no cluster profile" in tk.refusal(ConfigError, "config", "show", "--profile", "zzz")


def test_path(tk: Tk) -> None:
    assert "none above" in tk("config", "path")
    (tk.project / "tunnelkit.toml").write_text('profile = "plain-ssh"\n')
    shown = tk("config", "path")
    assert str(tk.project / "tunnelkit.toml") in shown and "plain-ssh.toml" in shown


def test_init_undoes_the_shell_s_expansion_of_the_home(tk: Tk) -> None:
    tk("init", "--login", "h", "--remote", str(Path.home() / "code"), "--scheduler", "none")
    assert tk.toml()["mirror"] == {"remote": "~/code"}


def test_launch_json_follows_the_session_s_port_above_the_project_too(tk: Tk) -> None:
    tk("init", "--login", "h", "--remote", "/r", "--scheduler", "none")
    tk("vscode", "--folder", "..")
    settings = load(tk.project)
    above = tk.project.parent / ".vscode" / "launch.json"
    changed = [one.path for one in follow_port(settings, 40123)]
    assert changed == [tk.project / ".vscode" / "launch.json", above]
    assert '"port": 40123' in above.read_text()
    assert follow_port(settings, 40123) == []
    above.write_text(above.read_text().replace("/proj", "/other"))
    assert [one.path for one in follow_port(settings, 40124)] == changed[:1]


def test_the_task_before_f5_follows_the_session_on_one_port_too(tk: Tk) -> None:
    """Two projects below one folder: the session that is up is the one that F5 proves."""
    tk("init", "--login", "h", "--remote", "/r", "--scheduler", "none", "--no-vscode")
    tk("vscode", "--folder", "..")
    settings, folder = load(tk.project), tk.project.parent / ".vscode"
    other = (folder / "tasks.json").read_text().replace(f"/{tk.project.name}", "/other")
    (folder / "tasks.json").write_text(other)
    changed = follow_port(settings, settings.debug.port)
    assert [one.path for one in changed] == [folder / "tasks.json"]
    assert f"${{workspaceFolder}}/{tk.project.name}" in (folder / "tasks.json").read_text()
    own = '{"version": "2.0.0", "tasks": [{"label": "mine", "type": "shell", "command": "ls"}]}'
    (folder / "tasks.json").write_text(own)
    assert [one.path.name for one in follow_port(settings, 40123)] == ["launch.json"]
    assert (folder / "tasks.json").read_text() == own


def test_init_with_flags(tk: Tk) -> None:
    shown = tk("init", "--login", "me@host", "--remote", "/scratch/x", "--scheduler", "none")
    assert "tunnelkit.toml: created" in shown and ".vscode/launch.json: created" in shown
    assert tk.toml() == {
        "cluster": {"login": "me@host", "scheduler": "none"},
        "allocation": {},
        "mirror": {"remote": "/scratch/x"},
        "debug": {},
    }
    assert '"remoteRoot": "/scratch/x"' in (tk.project / ".vscode/launch.json").read_text()
    assert tk("vscode").count("already right") == 2


def test_every_commented_line_of_the_template_holds(tk: Tk) -> None:
    tk("init", "--login", "me@host", "--no-vscode")
    path = tk.project / "tunnelkit.toml"
    lines = [
        line.removeprefix("# ")
        if line.startswith("# [[") or (" = " in line and line[2:].split(" = ")[0].isidentifier())
        else line
        for line in path.read_text().splitlines()
        if not line.startswith("# profile")
    ]
    path.write_text("\n".join(lines))
    shown = json.loads(tk("config", "show", "--json"))["values"]
    assert shown["allocation.time"]["value"] == "2:00:00"
    assert shown["mirror.remote"]["value"] == "~/tk/proj"
    assert shown["mirror.also"]["value"] == [{"local": "../lib", "remote": "~/tk/lib"}]
    assert shown["cluster.prologue"]["value"] == "module load cuda\nsource ~/venv/bin/activate"


def test_init_detects_the_scheduler(tk: Tk) -> None:
    assert "me@host: scheduler slurm" in tk("init", "--login", "me@host", "--no-vscode")
    assert tk.toml()["cluster"]["scheduler"] == "slurm"
    assert not (tk.project / ".vscode").exists()


@pytest.mark.parametrize("found", ["pbs", "torque"])
def test_init_writes_what_it_found(tk: Tk, found: str) -> None:
    tk.detect.detect_scheduler = lambda settings, prompter: found  # type: ignore[attr-defined]
    assert f"scheduler {found}" in tk("init", "--login", "me@host", "--no-vscode")
    assert tk.toml()["cluster"]["scheduler"] == found


def test_init_looks_again_later_for_a_scheduler_that_is_not_there(tk: Tk) -> None:
    tk.detect.detect_scheduler = lambda settings, prompter: "none"  # type: ignore[attr-defined]
    shown = tk("init", "--login", "me@host", "--no-vscode")
    assert "me@host: no scheduler found" in shown and shown.endswith("next: tk up\n")
    assert "scheduler" not in tk.toml()["cluster"]


def test_init_leaves_auto_where_it_cant_tell(tk: Tk) -> None:
    away = failing(ConnectionFailed("host can't be reached"))
    tk.detect.detect_scheduler = away  # type: ignore[attr-defined]
    shown = tk("init", "--login", "me@host", "--no-vscode")
    assert "left at auto" in shown
    assert "scheduler" not in tk.toml()["cluster"]


def test_init_s_last_word_is_of_a_host_that_does_not_answer(tk: Tk) -> None:
    tk.detect.detect_scheduler = failing(ConnectionFailed("away"))  # type: ignore[attr-defined]
    *_, last = tk("init", "--login", "typo", "-y", "--no-vscode").splitlines()
    assert last == "next: typo does not answer: correct tunnelkit.toml, or see tk doctor"
    tk.detect.detect_scheduler = lambda settings, prompter: "slurm"  # type: ignore[attr-defined]
    *_, last = tk("init", "--login", "typo", "-y", "--no-vscode", "--force").splitlines()
    assert last == "next: tk up"


def test_init_without_vscode_when_the_cluster_is_away(tk: Tk) -> None:
    tk.detect.remote_root = failing(ConnectionFailed("away"))  # type: ignore[attr-defined]
    assert "run `tk vscode` later" in tk("init", "--login", "me@host")
    assert tk.toml() and not (tk.project / ".vscode").exists()


def test_init_never_overwrites_unasked(tk: Tk) -> None:
    path = tk.project / "tunnelkit.toml"
    path.write_text("# mine\n")
    assert "--force" in tk.refusal(UsageError, "init", "--login", "me@host")
    assert path.read_text() == "# mine\n"
    assert "tunnelkit.toml: replaced" in tk("init", "--login", "me@host", "--force")
    assert tk.toml()["cluster"]["login"] == "me@host"


def test_init_with_nobody_to_ask(tk: Tk) -> None:
    assert "--login HOST or --profile NAME" in tk.refusal(UsageError, "init")
    assert not (tk.project / "tunnelkit.toml").exists()


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (("--login", "-oProxyCommand=x"), "is not a host name"),
        (("--login", "h", "--remote", "/"), "it is the root"),
        (("--login", "h", "--scheduler", "lsf"), "is not known"),
        (("--profile", "nope"), "no cluster profile 'nope'"),
    ],
)
def test_init_checks_its_flags(tk: Tk, args: tuple[str, ...], part: str) -> None:
    assert part in tk.refusal(ConfigError, "init", *args)
    assert list(tk.project.iterdir()) == []


def test_init_with_a_profile(tk: Tk, tmp_path: Path) -> None:
    clusters = tmp_path / "conf" / "clusters"
    clusters.mkdir(parents=True)
    (clusters / "mine.toml").write_text('[cluster]\nlogin = "h"\nscheduler = "none"\n')
    tk("init", "--profile", "mine")
    assert tk.toml() == {
        "profile": "mine",
        "cluster": {},
        "allocation": {},
        "mirror": {},
        "debug": {},
    }


def test_init_writes_down_what_the_environment_named(
    tk: Tk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TK_CLUSTER_LOGIN", "me@host")
    tk("init", "--no-vscode")
    assert tk.toml()["cluster"]["login"] == "me@host"


def test_init_stops_before_writing_if_launch_json_is_malformed(tk: Tk) -> None:
    path = tk.project / ".vscode" / "launch.json"
    path.parent.mkdir()
    path.write_text("{")
    assert f"{path}:1:2" in tk.refusal(DebugError, "init", "--login", "h")
    assert not (tk.project / "tunnelkit.toml").exists() and path.read_text() == "{"


def test_init_asks_a_person(tk: Tk) -> None:
    """On a real terminal: a wrong answer is asked for again, an empty one takes the default."""
    script = (
        "import typer; from tunnelkit.cli.commands.start.init import init\n"
        "app = typer.Typer(); app.command()(init); app()"
    )
    arguments = ["--scheduler", "slurm", "--no-vscode"]
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", script, *arguments], stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    try:
        os.write(ours, b"-x\nme@host\n\n")
        seen = b""
        while chunk := _read(ours):
            seen += chunk
        assert child.wait(30) == 0, seen.decode()
    finally:
        os.close(ours)
        child.kill()
        child.wait()
    assert b"'-x' is not a host name" in seen and b"lab, pbs-site, plain-ssh" in seen
    assert tk.toml()["cluster"] == {"login": "me@host", "scheduler": "slurm"}
    assert tk.toml()["mirror"] == {"remote": "~/tk/proj"}


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # Linux says EIO once the last process has left the terminal
        return b""


def test_vscode_dry_run_writes_nothing(tk: Tk) -> None:
    (tk.project / "tunnelkit.toml").write_text('[cluster]\nlogin = "h"\n')
    tk("trust", "--yes")
    assert tk("vscode", "--dry-run").count("would be created") == 2
    assert not (tk.project / ".vscode").exists()
    assert tk("vscode").count(": created") == 2
    assert tk("vscode", "--dry-run").count(": already right") == 2


def test_vscode_in_another_folder(tk: Tk) -> None:
    (tk.project / "tunnelkit.toml").write_text('[mirror]\nremote = "/r"\n')
    (tk.project / "sub").mkdir()
    tk("trust", "--yes")
    tk("vscode", "--folder", "sub")
    assert '"remoteRoot": "/r/sub"' in (tk.project / "sub/.vscode/launch.json").read_text()
    tk("vscode", "--folder", "..")
    above = (tk.project.parent / ".vscode/launch.json").read_text()
    assert '"localRoot": "${workspaceFolder}/proj"' in above and '"remoteRoot": "/r"' in above
    assert "nothing to do with" in tk.refusal(UsageError, "vscode", "--folder", "/usr")
    assert "not a directory" in tk.refusal(UsageError, "vscode", "--folder", "nope")


def test_vscode_writes_mappings_for_all_roots(tk: Tk) -> None:
    (tk.project / "tunnelkit.toml").write_text(
        '[cluster]\nlogin = "h"\n[mirror]\nremote = "~/tk/proj"\n'
        '[[mirror.also]]\nlocal = "../lib"\nremote = "~/tk/lib"\n'
        '[[mirror.also]]\nlocal = "/data/x"\nremote = "/scratch/x"\n'
    )
    tk("trust", "--yes")
    tk("vscode")
    text = (tk.project / ".vscode/launch.json").read_text()
    for local, remote in (
        ("${workspaceFolder}", "/home/me/tk/proj"),
        ("${workspaceFolder}/../lib", "/home/me/tk/lib"),
        ("/data/x", "/scratch/x"),
    ):
        assert f'"localRoot": "{local}"' in text and f'"remoteRoot": "{remote}"' in text
    tk("vscode", "--folder", "..")
    above = (tk.project.parent / ".vscode/launch.json").read_text()
    assert '"localRoot": "${workspaceFolder}/lib"' in above


def test_vscode_needs_a_login_host_to_ask(tk: Tk) -> None:
    assert "no login host is configured" in tk.refusal(ConfigError, "vscode")
