"""TAB in real shells, with the scripts that `tk --install-completion` writes."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tunnelkit.cli.registry import COMMANDS, TOPICS
from tunnelkit.session.runtime import completion_cache

_BIN = Path(sys.executable).parent
NODES = ("node01", "node02")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with names of a cluster in its cache; tests run in its project."""
    told = completion_cache.ClusterNames(
        nodes=NODES, partitions=("gpu", "short"), jobs=("4711",), owners=("job/fit",)
    )
    project = tmp_path / "project"
    project.mkdir()
    (project / "tunnelkit.toml").write_text('[cluster]\nlogin = "login"\n')
    cache = tmp_path / "cache" / "tunnelkit" / "names.json"
    completion_cache.remember("login", project, told, path=cache)
    other = completion_cache.ClusterNames(nodes=("elsewhere",))
    completion_cache.remember("other", tmp_path, other, path=cache)
    return tmp_path


def run(home: Path, shell: str, script: str) -> subprocess.CompletedProcess[str]:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    environ = {
        "PATH": f"{_BIN}:{os.environ['PATH']}",
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / "cache"),
        "TK_STATE_DIR": str(home / "state"),
        "TK_RUNTIME_DIR": str(home / "run"),
        "LC_ALL": "C.UTF-8",
        "TERM": "dumb",
    }
    done = subprocess.run(
        [shell, "-c", script],
        cwd=home / "project",
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done
    return done


def bash(home: Path, *words: str) -> list[str]:
    """What bash puts up when TAB is pressed at the end of these words."""
    array = " ".join(map(shlex.quote, words))
    script = f"""
source ~/.bashrc
function=$(complete -p tk | sed 's/.*-F \\([^ ]*\\).*/\\1/')
COMP_WORDS=({array}) COMP_CWORD={len(words) - 1}
COMP_LINE="${{COMP_WORDS[*]}}" COMP_POINT=${{#COMP_LINE}}
"$function" tk {shlex.quote(words[-1])} {shlex.quote(words[-2])}
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = run(home, "bash", script)
    assert not done.stderr
    return [line for line in done.stdout.splitlines() if line]


def test_bash(home: Path) -> None:
    told = run(home, "bash", "tk --install-completion; exit $?")
    assert "bash completion installed" in told.stdout
    assert set(bash(home, "tk", "")) == set(COMMANDS)
    assert bash(home, "tk", "fo") == ["forward"]
    assert bash(home, "tk", "up", "") == [*NODES, "job/fit"]
    assert bash(home, "tk", "up", "job/f") == ["job/fit"]
    assert bash(home, "tk", "up", "--gpus", "1", "node01") == ["node01"]
    assert bash(home, "tk", "up", "--partition", "g") == ["gpu"]
    assert bash(home, "tk", "up", "--gpus", "") == []
    assert bash(home, "tk", "up", "--pa") == ["--partition"]
    assert bash(home, "tk", "up", "node01", "") == []
    assert bash(home, "tk", "why", "") == bash(home, "tk", "logs", "47") == ["4711"]
    assert bash(home, "tk", "why", "--explain", "nev") == ["never"]
    assert bash(home, "tk", "config", "sh") == ["show"]
    assert set(TOPICS) <= set(bash(home, "tk", "help", ""))
    assert bash(home, "tk", "run", "python", "--") == []
    assert bash(home, "tk", "up", "'nod") == list(NODES)
    # Nobody is up: nothing to offer, and nothing said.
    assert bash(home, "tk", "forward", "--cancel", "") == []


def test_zsh(home: Path) -> None:
    run(home, "zsh", "tk --install-completion; exit $?")
    # compsys itself needs a terminal; what it is told to offer does not.
    script = """
function _arguments { print -r -- "$@" }
function _files { print files }
function compdef { }
words=(tk up no) CURRENT=3
eval "$(sed 's/^#compdef.*//' ~/.zfunc/_tk)"
_tk_completion
words=(tk run x) _tk_completion
"""
    done = run(home, "zsh", script)
    assert '"node01"' in done.stdout and '"node02"' in done.stdout
    assert "elsewhere" not in done.stdout
    assert "files" in done.stdout.splitlines()


def test_fish(home: Path) -> None:
    run(home, "fish", "tk --install-completion; exit $status")
    done = run(home, "fish", "complete -C 'tk up '; echo; complete -C 'tk sta'")
    nodes, _, commands = done.stdout.partition("\n\n")
    assert set(nodes.splitlines()) == {*NODES, "job/fit"}
    assert commands.startswith("status\t") and "Show what is up" in commands


def test_the_caches_are_private_and_a_broken_one_is_made_anew(home: Path) -> None:
    run(home, "bash", "tk --install-completion; exit $?")
    bash(home, "tk", "")
    cache = home / "cache" / "tunnelkit"
    for name in ("commands.json", "names.json"):
        assert (cache / name).stat().st_mode & 0o777 == 0o600
    (cache / "commands.json").write_text('{"stamp": 3')
    (cache / "names.json").write_text("[]")
    assert bash(home, "tk", "forw") == ["forward"]
    assert bash(home, "tk", "up", "") == []
    assert json.loads((cache / "commands.json").read_text())["top"]["commands"]["up"]


def test_without_a_place_for_a_cache_there_is_completion_all_the_same(home: Path) -> None:
    run(home, "bash", "tk --install-completion; exit $?")
    shutil.rmtree(home / "cache")
    (home / "cache").write_text("a file")
    assert bash(home, "tk", "forw") == ["forward"]
