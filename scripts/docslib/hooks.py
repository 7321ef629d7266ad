"""Hooks of mkdocs: add the pages that have their source outside of docs/."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from scripts.docslib import reference  # noqa: E402
from tunnelkit.cli.commands.support.help import summary, text_of  # noqa: E402
from tunnelkit.cli.registry import TOPICS  # noqa: E402

#: Documents of the source tree that are pages of the site: address in the site -> file.
PROJECT = {
    f"project/{Path(name).name}": name
    for name in (
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "tunnelkit/wire/PROTOCOL.md",
    )
}
_LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)")


def on_config(config: Any) -> Any:
    """List the topics of `tk help` in the navigation."""
    for section in config["nav"]:
        if isinstance(section, dict) and "Help topics" in section:
            section["Help topics"] += [{name: f"help/{name}.md"} for name in TOPICS]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages."""
    for uri, text in pages().items():
        files.append(File.generated(config, uri, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Lead links out of docs/ to the page that the file has in the site, else show its path."""
    source = PROJECT.get(page.file.src_uri)
    at = ROOT / source if source else ROOT / "docs" / page.file.src_uri
    depth = page.file.src_uri.count("/")

    def follow(link: re.Match[str]) -> str:
        target = (at.parent / link[1]).resolve()
        if not target.is_relative_to(ROOT):
            return link[0]
        path = target.relative_to(ROOT).as_posix()
        uri = {file: uri for uri, file in PROJECT.items()}.get(path)
        if path == "README.md":
            uri = "index.md"
        if uri is None and path.startswith("docs/"):
            uri = path.removeprefix("docs/")
        if uri is None:
            return f"] (`{path}`)"
        return f"]({'../' * depth}{uri}{link[2] or ''})"

    return re.sub(r"\[([^\]]*)\] \((`[^`]+`)\)", r"\1 (\2)", _LINK.sub(follow, markdown))


def pages() -> dict[str, str]:
    """Return the pages that are made here: address in the site -> Markdown."""
    made = {uri: (ROOT / file).read_text(encoding="utf-8") for uri, file in PROJECT.items()}
    made |= {f"help/{name}.md": _topic(name) for name in TOPICS}
    rows = "\n".join(f"- [`tk help {name}`]({name}.md): {summary(name)}" for name in TOPICS)
    made["help/index.md"] = (
        f"# Topics of `tk help`\n\nThe same texts as in the terminal.\n\n{rows}\n"
    )
    return made | reference.pages()


def _topic(name: str) -> str:
    """Return a topic with links where it names another one, also across a line's end."""
    known = "|".join(map(re.escape, TOPICS))
    naming = re.compile(rf"`tk\s+help\s+({known})`")
    # Indented lines are code.
    prose = re.split(r"((?:^ {4}.*\n)+)", text_of(name), flags=re.MULTILINE)
    return "".join(
        part if part.startswith("    ") else naming.sub(r"[`tk help \1`](\1.md)", part)
        for part in prose
    )
