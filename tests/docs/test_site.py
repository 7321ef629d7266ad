"""The documentation site: complete, its links whole, and usable in a real browser and by phone."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import typer

from scripts.docslib import links, reference
from scripts.docslib.settings import MEANING
from tests.unit.test_error_messages import ALL
from tunnelkit.cli.app import build
from tunnelkit.cli.registry import COMMANDS, TOPICS
from tunnelkit.config.schema import KEYS
from tunnelkit.errors import MEANINGS

pytestmark = pytest.mark.slow

with contextlib.suppress(ImportError):  # then the tests of the browser skip
    from playwright.async_api import async_playwright

if TYPE_CHECKING:
    from playwright.async_api import Page

ROOT = Path(__file__).parents[2]
#: Pages that a phone's reader meets first, and those with the widest tables.
PHONE = [
    "index.html",
    "tutorial.html",
    "slurm.html",
    "survives.html",
    "security.html",
    "reference/commands.html",
    "reference/settings.html",
    "reference/errors.html",
    "help/mirror.html",
    "project/ARCHITECTURE.html",
]


# -- complete ---------------------------------------------------------------------------------


def test_every_setting_has_its_meaning() -> None:
    assert list(MEANING) == list(KEYS)
    page = reference.settings()
    for key in KEYS.values():
        assert f"`{key.variable}`" in page


def test_every_command_and_option_is_in_the_reference() -> None:
    page = reference.commands()
    group = typer.main.get_command(build(set(COMMANDS)))
    todo = [(name, group.commands[name]) for name in COMMANDS]  # type: ignore[attr-defined]
    while todo:
        name, command = todo.pop()
        todo += [(f"{name} {one}", under) for one, under in _below(command)]
        section = re.search(rf"^#+ tk {name}\n(.*?)(?=^#|\Z)", page, re.MULTILINE | re.DOTALL)
        assert section, name
        for parameter in command.params:
            for word in parameter.opts if not getattr(parameter, "hidden", False) else ():
                known = word in ("--help", "-h") or f"`{word}`" in section[1]
                assert known or parameter.param_type_name == "argument", f"tk {name} {word}"


def _below(command: object) -> list[tuple[str, typer.core.TyperCommand]]:
    return list(getattr(command, "commands", {}).items())


def test_every_error_and_exit_code_is_in_the_reference() -> None:
    made = {(message, hint) for _, message, hint in reference.errors_made()}
    for one in ALL:
        if one.kind in reference.error_kinds() and not one.file.startswith(("demo/", "lab/")):
            assert (one.message.replace("{}", "…"), (one.hint or "").replace("{}", "…")) in made
    page = reference.exit_codes()
    for code, meaning in MEANINGS.items():
        assert f"| {int(code)} | {code.name} | {meaning} |" in page


# -- built ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `scripts/docs` builds it."""
    if find_spec("mkdocs") is None or find_spec("material") is None:
        pytest.skip("mkdocs-material is not installed: scripts/setup --docs")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_links_anchors_and_images_lead_somewhere_and_to_no_other_host(site: Path) -> None:
    assert not list(links.faults(site))


def test_the_link_checker_finds_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<a href="b.html#here">good</a> <h1 id="top"></h1><a href="#top">good</a>'
        '<a href="c.html">gone</a><a href="b.html#there">gone</a><img src="x.png">'
        '<script src="https://cdn.example.org/x.js"></script><a href="https://example.org">good</a>'
    )
    (tmp_path / "b.html").write_text('<p id="here"></p>')
    found = list(links.faults(tmp_path))
    assert len(found) == 4, found


def test_every_topic_of_tk_help_is_a_page(site: Path) -> None:
    for topic in TOPICS:
        assert (site / f"help/{topic}.html").is_file()
    assert "@EXIT_CODES@" not in (site / "help/exit-codes.html").read_text()


# -- in a browser -----------------------------------------------------------------------------


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Where the site is served."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _browser() -> str | None:
    names = ("chromium", "google-chrome", "google-chrome-stable", "chromium-browser")
    return next((found for name in names if (found := shutil.which(name))), None)


@pytest.fixture
async def page(address: str) -> AsyncIterator[Page]:
    """A page of a browser that may fetch from nobody but the site."""
    program = _browser()
    if program is None or find_spec("playwright") is None:
        pytest.skip("no chromium, or no playwright: scripts/setup --vscode")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        try:
            page = await browser.new_page()
            asked: list[str] = []
            page.on("request", lambda request: asked.append(request.url))
            yield page
            elsewhere = [url for url in asked if not url.startswith((address, "data:", "blob:"))]
            assert not elsewhere, elsewhere
        finally:
            await browser.close()


async def _picture(page: Page, name: str) -> None:
    if folder := os.environ.get("TK_SITE_PICTURES"):
        await page.screenshot(path=Path(folder) / f"{name}.png")


async def test_the_search_finds_a_word(page: Page, address: str) -> None:
    await page.goto(address)
    await page.keyboard.press("/")
    await page.keyboard.type("collective_timeouts")
    first = page.locator(".md-search-result__item a").first
    await first.wait_for()
    await _picture(page, "search")
    found = await page.locator(".md-search-result__item a").evaluate_all(
        "all => all.map(one => one.getAttribute('href'))"
    )
    assert any("reference/settings" in one for one in found), found
    await first.click()
    await page.get_by_text("collective_timeouts").first.wait_for()


async def test_no_image_is_broken(page: Page, address: str, site: Path) -> None:
    seen = 0
    for file in sorted(site.rglob("*.html")):
        if "<img" not in file.read_text():
            continue
        await page.goto(address + file.relative_to(site).as_posix())
        broken = await page.evaluate(
            "[...document.images].filter(one => !one.naturalWidth).map(one => one.src)"
        )
        assert not broken, broken
        seen += await page.evaluate("document.images.length")
    assert seen >= 9


async def test_a_phone_needs_no_sideways_scrolling(page: Page, address: str) -> None:
    await page.set_viewport_size({"width": 390, "height": 844})
    for name in PHONE:
        await page.goto(address + name)
        # A page that can be scrolled sideways by however little moves under the thumb.
        moved = await page.evaluate("window.scrollTo(1000, 0), window.scrollX")
        width = await page.evaluate("document.documentElement.scrollWidth")
        await _picture(page, f"phone-{name.replace('/', '-')}")
        assert (moved, width) == (0, 390), name
