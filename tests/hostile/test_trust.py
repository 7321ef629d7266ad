"""A clone's tunnelkit.toml runs and sends nothing before the person has agreed."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import pytest

from tests.hostile.repository import TK, Clone
from tunnelkit.config.schema import KEYS
from tunnelkit.config.trust import HARMLESS, RISKY

_ASKS = [["up"], ["up", "node1", "--gpus", "1"], ["doctor"], ["vscode"], ["bugreport"]]
_OTHERS = [
    *(["status"], ["ready"], ["ready", "--sync"], ["run", "true"], ["sync", "--wait"]),
    *(["pull", "x"], ["mount", "m"], ["forward", "8888"], ["down"], ["config", "show"]),
    *(["auth"], ["logs"], ["attach"], ["trust", "--show"], ["trust"], ["shell"]),
    ["loop", "python", "x.py"],
]


@pytest.mark.parametrize("command", _ASKS, ids=" ".join)
def test_what_would_run_something_names_tk_trust(hostile_clone: Clone, command: list[str]) -> None:
    done = hostile_clone.tk(*command)
    assert done.returncode == 3 and "tk trust" in done.stderr, done
    assert not hostile_clone.pwned


@pytest.mark.parametrize("command", _OTHERS, ids=" ".join)
def test_no_other_command_runs_anything(hostile_clone: Clone, command: list[str]) -> None:
    hostile_clone.tk(*command)
    assert not hostile_clone.pwned


def test_tab_runs_nothing(hostile_clone: Clone) -> None:
    hostile_clone.tk(_TK_COMPLETE="complete_bash", COMP_WORDS="tk up ", COMP_CWORD="2")
    assert not hostile_clone.pwned


def test_agreed_it_runs_and_a_change_is_asked_again(hostile_clone: Clone) -> None:
    shown = hostile_clone.tk("trust", "--yes")
    assert shown.returncode == 0 and "PWNED-proxy" in shown.stdout  # the file's content, too
    hostile_clone.tk("doctor")
    assert hostile_clone.pwned, "the hostile part is none"
    rc = hostile_clone.dir / ".sshrc"
    rc.write_text(rc.read_text() + "# changed\n")
    assert hostile_clone.tk("doctor").returncode == 3
    hostile_clone.tk("trust", "--yes")
    assert hostile_clone.tk("doctor").returncode != 3
    assert hostile_clone.tk("trust", "--revoke").returncode == 0
    assert hostile_clone.tk("doctor").returncode == 3


@pytest.mark.parametrize("word", ["Include ", "\rInclude ", "=Include ", '"include" ', "include="])
def test_an_included_file_is_refused(hostile_clone: Clone, word: str) -> None:
    (hostile_clone.dir / ".sshrc").write_text(f"{word}{hostile_clone.dir}/more\n", newline="")
    done = hostile_clone.tk("trust", "--yes")
    assert done.returncode == 3 and "includes other files" in done.stderr


def test_harmless_keys_never_ask(hostile_clone: Clone) -> None:
    hostile_clone.configure(
        'forwards = ["8888"]\n[allocation]\ngpus = 1\ncpus = 2\ntime = "1:00:00"\n'
        '[mirror]\nremote = "~/tk/x"\nexclude = ["data/"]\n'
    )
    assert "nothing here needs" in hostile_clone.tk("trust").stdout
    assert "no login host" in hostile_clone.tk("up").stderr


def test_every_key_is_judged() -> None:
    assert not RISKY & HARMLESS
    assert set(KEYS) == RISKY | HARMLESS


@pytest.mark.parametrize(
    "text",
    [
        '[[mirror.also]]\nlocal = "~/.ssh"\nremote = "~/tk/b"\n',
        '[[mirror.also]]\nlocal = "~"\nremote = "~/tk/b"\n',
        '[[mirror.also]]\nlocal = "~/.ssh/sub"\nremote = "~/tk/b"\n',
        '[[mirror.also]]\nlocal = "~/.secret"\nremote = "~/tk/b"\n',
        '[[mirror.also]]\nlocal = "../link"\nremote = "~/tk/b"\n',
        '[[mirror.also]]\nlocal = "../lib"\nremote = "~/.ssh"\n',
        '[mirror]\nremote = "~/.ssh"\n',
        '[mirror]\nremote = "~/./.ssh/x"\n',
        '[mirror]\nremote = "/home/me//.ssh"\n',
        '[mirror]\nremote = "~/x/../.ssh"\n',
    ],
)
def test_some_places_are_never_a_projects_to_name(hostile_clone: Clone, text: str) -> None:
    (hostile_clone.dir.parent / "link").symlink_to(hostile_clone.home / ".ssh")
    hostile_clone.configure(text)
    for command in (["trust", "--yes"], ["up", "--login", "x"]):
        assert hostile_clone.tk(*command).returncode == 3


def test_control_characters_are_shown_as_escapes(hostile_clone: Clone) -> None:
    hostile_clone.configure('[cluster]\nprologue = "a\\nb"\n')
    (hostile_clone.dir / ".sshrc").write_text("Host *\n# \x1b]0;OWNED\x07\u202e\n")
    hostile_clone.configure('[cluster]\nssh_config = ".sshrc"\nprologue = "x\\ny \u202e"\n')
    shown = hostile_clone.tk("trust", "--show").stdout
    assert all(line.isprintable() for line in shown.splitlines()) and "OWNED" in shown


@pytest.mark.parametrize(("answer", "code"), [(b"n\n", 3), (b"y\n", 0)])
def test_a_person_is_asked(hostile_clone: Clone, answer: bytes, code: int) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [TK, "trust"],
        cwd=hostile_clone.dir,
        env=hostile_clone.env,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        os.write(ours, answer)
        assert process.wait(30) == code
    os.close(ours)
    assert (hostile_clone.tk("doctor").returncode == 3) == (code == 3)


def test_what_init_writes_is_agreed_to(hostile_clone: Clone, tmp_path: Path) -> None:
    args = ("--login", "127.0.0.1", "--remote", "~/code/x", "--scheduler", "none", "--no-vscode")
    done = hostile_clone.tk("init", "--force", "--yes", *args)
    assert done.returncode == 0, done
    assert hostile_clone.tk("trust", "--show").stdout.rstrip().endswith("agreed")
    again = hostile_clone.tk("init", "--force", "--yes", "--login", "x", "--remote", "~/.ssh")
    assert again.returncode == 3 and not hostile_clone.pwned


def test_a_manifest_is_agreed_to_as_it_is(hostile_clone: Clone) -> None:
    manifest = hostile_clone.dir / "job.yaml"
    manifest.write_text("kind: Pod\n")
    hostile_clone.configure('[allocation]\nmanifest = "job.yaml"\n')
    shown = hostile_clone.tk("trust", "--yes").stdout
    assert "as it is now (1 lines" in shown and hostile_clone.tk("doctor").returncode != 3
    manifest.write_text("kind: Pod\nspec: {hostNetwork: true}\n")
    assert hostile_clone.tk("doctor").returncode == 3
    manifest.unlink()
    assert hostile_clone.tk("doctor").returncode == 3


def test_a_name_that_a_shell_obeys_is_asked_about(hostile_clone: Clone) -> None:
    hostile_clone.configure('[mirror]\nremote = "~/tk/x$(id)"\n')
    done = hostile_clone.tk("vscode")
    assert done.returncode == 3 and "mirror.remote" in done.stderr


def test_a_link_out_of_the_clone_is_not_written_through(hostile_clone: Clone) -> None:
    hostile_clone.configure('[mirror]\nremote = "/r"\n')
    assert hostile_clone.tk("trust", "--yes").returncode == 0
    folder, rc = hostile_clone.dir / ".vscode", hostile_clone.home / ".bash_login"
    folder.mkdir()
    (folder / "launch.json").symlink_to(rc)
    for _ in ("not there", "there"):
        done = hostile_clone.tk("vscode")
        assert done.returncode == 10 and str(rc) in done.stderr, done
        assert not (folder / "tasks.json").exists()
        assert not rc.exists() or rc.read_text() == "// mine\n"
        rc.write_text("// mine\n")
    config = hostile_clone.dir / "tunnelkit.toml"
    config.unlink()
    config.symlink_to(rc)
    args = ("--login", "127.0.0.1", "--remote", "~/code/x", "--scheduler", "none", "--no-vscode")
    done = hostile_clone.tk("init", "--force", "--yes", *args)
    assert done.returncode == 3 and rc.read_text() == "// mine\n", done


@pytest.mark.parametrize("target", ["pipe", "/dev/zero"])
def test_a_launch_json_that_has_no_end_is_not_read(hostile_clone: Clone, target: str) -> None:
    hostile_clone.configure('[mirror]\nremote = "/r"\n')
    hostile_clone.tk("trust", "--yes")
    (hostile_clone.dir / ".vscode").mkdir()
    os.mkfifo(hostile_clone.dir / ".vscode" / "pipe")
    (hostile_clone.dir / ".vscode" / "launch.json").symlink_to(target)
    done = hostile_clone.tk("vscode")
    assert done.returncode == 10 and "not a plain file" in done.stderr
