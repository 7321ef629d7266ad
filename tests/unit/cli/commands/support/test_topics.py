"""`tk help`: every topic is there, fits a terminal, and speaks of what exists."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import tunnelkit.cli
from tunnelkit.cli.app import build
from tunnelkit.cli.commands.support.help import page, summary, text_of
from tunnelkit.cli.registry import COMMANDS, TOPICS
from tunnelkit.config.schema import KEYS

_TK = Path(sys.executable).parent / "tk"
_DIRECTORY = Path(tunnelkit.cli.__file__ or "").parent / "topics"


def tk(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(_TK), *args],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("topic", TOPICS)
def test_a_topic_has_a_title_and_fits_a_terminal(topic: str) -> None:
    text = text_of(topic)
    assert text.startswith("# ") and text.endswith("\n")
    assert [line for line in text.splitlines() if len(line) > 80] == []
    assert len(summary(topic)) <= 60 and "@" not in summary(topic)
    assert len(text.splitlines()) <= 60, "a topic is read at one sitting"


def test_the_topics_are_those_that_have_a_text() -> None:
    assert {path.stem for path in _DIRECTORY.glob("*.md")} == set(TOPICS)


@pytest.mark.parametrize("topic", TOPICS)
def test_what_a_topic_names_exists(topic: str) -> None:
    text = re.sub(r"\s+", " ", text_of(topic))
    shown = re.findall(r"(?m)^ +tk ([a-z]+)", text_of(topic))
    for word in [*shown, *re.findall(r"`tk ([a-z]+)", text)]:
        assert word in COMMANDS, f"tk {word}"
    for other in re.findall(r"`tk help ([a-z-]+)`", text):
        assert other in TOPICS, other
    for section, key in re.findall(r"\[(cluster|allocation|mirror|debug)\] ([a-z_]+) ?=", text):
        assert f"{section}.{key}" in KEYS


@pytest.mark.parametrize("topic", TOPICS)
def test_the_options_that_a_topic_shows_exist(topic: str) -> None:
    options = {}
    for line in text_of(topic).splitlines():
        found = re.match(r" +tk ([a-z]+) ((?:.(?!  ))*.)", line)
        if not found:
            continue
        name, rest = found.groups()
        if name not in options:
            command = typer.main.get_command(build({name})).commands[name]  # type: ignore[attr-defined]
            options[name] = {word for one in command.params for word in one.opts}
        for word in re.findall(r"(?<!\S)--[a-z-]+", rest):
            ours = (
                name not in ("run", "loop") or word in rest.split("python")[0].split("torchrun")[0]
            )
            assert not ours or word in options[name], line


def test_all_keys_of_the_settings_are_told() -> None:
    text = text_of("config")
    for name in KEYS:
        assert re.search(rf"\b{re.escape(name.rpartition('.')[2])}\b", text), name


def test_the_overview_lists_every_topic() -> None:
    done = tk("help")
    assert done.returncode == 0 and not done.stderr
    for topic in TOPICS:
        assert re.search(rf"^  {topic} +\S", done.stdout, re.MULTILINE)
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_help_on_a_topic_and_on_a_command() -> None:
    done = tk("help", "exit-codes")
    assert done.stdout == text_of("exit-codes") and "\x1b" not in done.stdout
    assert tk("help", "up").stdout == tk("up", "--help").stdout


def test_a_topic_that_is_not_there() -> None:
    done = tk("help", "exit-code")
    assert done.returncode == 2 and done.stderr.endswith("did you mean 'exit-codes'?\n")
    assert "lists the topics" in tk("help", "qqqq").stderr


def on_a_terminal(*args: str, **environ: str) -> str:
    """All that `tk` shows on a terminal."""
    master, slave = pty.openpty()
    with subprocess.Popen(
        [str(_TK), *args], stdin=slave, stdout=slave, env={**os.environ, "TERM": "xterm", **environ}
    ) as process:
        os.close(slave)
        shown = b""
        with contextlib.suppress(OSError):  # how Linux tells that the other end is closed
            while data := os.read(master, 4096):
                shown += data
        os.close(master)
    assert process.returncode == 0
    return shown.decode().replace("\r\n", "\n")


def test_a_text_is_paged_on_a_terminal_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pager = tmp_path / "pager"
    pager.write_text("#!/bin/sh\nsed 's/^/paged: /'\n")
    pager.chmod(0o755)
    shown = on_a_terminal("help", "ports", PAGER=str(pager), NO_COLOR="1")
    assert shown == "".join(f"paged: {line}\n" for line in text_of("ports").splitlines())
    assert "\x1b[1mReaching" in on_a_terminal("help", "ports", PAGER="cat", NO_COLOR="")
    monkeypatch.setenv("PAGER", str(pager))
    page("text\n")
    assert capsys.readouterr().out == "text\n"


def test_a_pager_that_is_not_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    from tunnelkit.cli.commands.support import help as module

    for value in ("/no/such/pager", "cat", "'"):
        monkeypatch.setenv("PAGER", value)
        assert module._pager() is None


def test_it_is_package_data() -> None:
    text = (Path(__file__).parents[5] / "pyproject.toml").read_text()
    assert '"cli/topics/*.md"' in text
    assert os.access(_DIRECTORY, os.R_OK)
