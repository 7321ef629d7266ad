"""What README, docs/, profiles and hints tell people to type, and link to, exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import typer

from scripts.docslib.pypi import for_pypi
from tests.unit.test_error_messages import ALL
from tunnelkit.cli.app import build
from tunnelkit.cli.registry import COMMANDS, TOPICS
from tunnelkit.config.schema import KEYS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROFILES = sorted((ROOT / "configs").glob("*.toml"))
#: Options of `tk` itself.
GLOBAL = {"--install-completion", "--show-completion", "--debug", "--version", "--help"}
#: In hints tk is also spoken of: "tk tries again", "let tk submit it".
VERBS = {"asks", "inside", "keeps", "looks", "reconnects", "submit", "that", "tries"}
#: Their words after the options are another program's.
_CARRIERS = ("run", "loop", "submit", "simulate")


@lru_cache(maxsize=1)
def commands() -> Any:
    group: Any = typer.main.get_command(build(set(COMMANDS)))
    return group.commands


def check(line: str, where: str) -> None:
    """`line` begins with `tk `: its command and options exist."""
    words = line.split()[1:]
    if not words or words[0].startswith(("-", "[")):
        assert not words or words[0] in GLOBAL or words[0] == "[OPTIONS]", f"{where}: {line}"
        return
    name = re.sub(r"[^a-z].*", "", words[0])
    assert name in commands(), f"{where}: {line}"
    command, rest = commands()[name], words[1:]
    if hasattr(command, "commands"):
        if rest and re.fullmatch("[a-z]+", rest[0]):
            assert rest[0] in command.commands, f"{where}: {line}"
            command, rest = command.commands[rest[0]], rest[1:]
        else:
            return
    known = {one for parameter in command.params for one in parameter.opts}
    known |= {one for parameter in command.params for one in parameter.secondary_opts}
    if name == "help" and rest and rest[0].islower():
        assert rest[0] in (*TOPICS, *COMMANDS, "topics"), f"{where}: {line}"
    for number, word in enumerate(rest):
        # After what is run, options are its own; the value of an option of ours is no command.
        own = rest[number - 1] in known if number else False
        if name in _CARRIERS and not word.startswith(("-", "[")) and not own:
            return
        for option in re.findall(r"--[a-z][a-z-]+", word):
            assert option in known | GLOBAL, f"{where}: {line}"


def lines_of(text: str) -> Iterator[str]:
    """All that is shown to be typed: lines of blocks, and spans of code in prose."""
    parts = text.split("```")
    for number, part in enumerate(parts):
        if number % 2:
            for line in part.splitlines():
                shown = re.split(r" {2,}|\s#", line.strip().removeprefix("$ "))[0]
                yield from (one.strip() for one in re.split(r"&&|;|\|", shown))
        else:
            for line in part.splitlines():
                if re.match(r" {4,}tk ", line):
                    yield re.split(r"(?<=\S) {2,}", line.strip())[0]
            yield from (" ".join(one.split()) for one in re.findall(r"`([^`]+)`", part))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_shows_exists(page: Path) -> None:
    text = page.read_text()
    for line in lines_of(text):
        if line.startswith("tk "):
            check(line, page.name)
    for section, key in re.findall(r"\[(cluster|allocation|mirror|debug)\] ([a-z_]+)\b", text):
        assert f"{section}.{key}" in KEYS, f"{page.name}: [{section}] {key}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if not link.startswith("http"):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_every_page_is_linked_to() -> None:
    """From README, or from a page that is: nobody looks into docs/ for luck."""
    seen: set[Path] = set()
    found = [ROOT / "README.md"]
    while found:
        page = found.pop()
        seen.add(page)
        links = re.findall(r"\]\(([^)#]+\.md)\)", page.read_text())
        ahead = {(page.parent / one).resolve() for one in links if not one.startswith("http")}
        found += [one for one in ahead - seen if one in PAGES]
    assert set(PAGES) <= seen, sorted(map(str, set(PAGES) - seen))


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_what_a_profile_shows_exists(profile: Path) -> None:
    text = re.sub(r"(?m)^# ?", "", profile.read_text())
    for line in lines_of(text):
        if line.startswith("tk "):
            check(line, profile.name)


def test_hints_name_what_exists() -> None:
    checked = 0
    for one in ALL:
        for text in re.findall(r"\btk [^`;,:()]*", one.hint or ""):
            if text.split()[1:2] and text.split()[1] in VERBS:
                continue
            check(text.replace("...", "").strip(), one.place)
            checked += 1
    assert checked > 80, checked


def test_what_the_code_says_to_run_exists() -> None:
    """In backticks, wherever it stands: fixes of `tk doctor`, tables of hints, notices, help."""
    checked = 0
    for file in sorted((ROOT / "tunnelkit").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for text in re.findall(r"`(tk [^`]+)`", node.value):
                    check(text.partition("|")[0].replace("...", "").strip(), file.name)
                    checked += 1
    assert checked > 150, checked


def test_pypi_gets_no_dead_link() -> None:
    shown = for_pypi((ROOT / "README.md").read_text())
    assert not re.findall(r"\]\((?!https?://)", shown)
    named = re.findall(r"\(`((?:[\w-]+/)*[\w-]*(?:\.md|/))`\)", shown)
    assert len(named) > 15
    grafted = re.findall(r"^graft (\S+)$", (ROOT / "MANIFEST.in").read_text(), re.MULTILINE)
    for command in named:
        path = command.split(" ")[0]
        assert (ROOT / path).exists(), path
        assert path.split("/")[0] in (*grafted, "tunnelkit") or "/" not in path, path


@pytest.mark.parametrize("file", [*PROFILES, *sorted((ROOT / "tunnelkit/cli/topics").iterdir())])
def test_what_the_wheel_shows_names_no_file_that_it_lacks(file: Path) -> None:
    named = re.findall(r"[\w./-]+\.md\b|\b(?:docs|scripts|tests)/[\w./-]+", file.read_text())
    assert not named, f"{file.name}: {named}"
