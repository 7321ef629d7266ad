"""What a person does and sees in a window of VS Code, by a browser.

VS Code's page has no interface for tests: the class names used here are the ones its own
smoke tests stand on. All waits are for something to appear, none for time to pass.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.tkrig import PATIENCE_S
from tests.vscode.server import Parts, Server
from tunnelkit.debug.vscode.vscode import ATTACH_NAME

with contextlib.suppress(ImportError):  # then the fixtures skip
    from playwright.async_api import TimeoutError as PlaywrightTimeout
    from playwright.async_api import async_playwright

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page

#: A directory for the pictures of the documentation; not set, they go with the test's files.
PICTURES = "TK_SCREENSHOTS"

# A dialog is the end of all hopes: what it says is the answer then.
_STOPPED_LINE = """() => {
  const dialog = document.querySelector('.monaco-dialog-box .dialog-message-container');
  if (dialog) return [0, dialog.textContent];
  const mark = document.querySelector('.view-overlays .debug-top-stack-frame-line');
  if (!mark) return null;
  const top = mark.parentElement.style.top;
  const editor = mark.closest('.monaco-editor');
  const line = [...editor.querySelectorAll('.margin-view-overlays > div')]
    .find(one => one.style.top === top)?.querySelector('.line-numbers');
  return line ? [Number(line.textContent), getComputedStyle(mark).backgroundColor] : null;
}"""


# Its list is made of what is in view, in any order.
_CALL_STACK = """() => [...document.querySelectorAll('.debug-call-stack .monaco-list-row')]
  .sort((one, other) => one.dataset.index - other.dataset.index).map(row => row.ariaLabel)"""


class Window:
    """A window with a folder open."""

    def __init__(self, page: Page, pictures: Path) -> None:
        self.page = page
        self._pictures = pictures
        self._status = page.locator(".part.statusbar")

    # -- files ------------------------------------------------------------

    async def open_file(self, name: str, language: str = "Python") -> None:
        """Open a file of the folder's top, by a double click in the Explorer."""
        files = self.page.locator(".explorer-viewlet")
        await files.get_by_role("treeitem", name=name, exact=True).dblclick()
        await self._editor.locator(".view-lines").wait_for()
        # Only then the extensions are there, and with them breakpoints in this language.
        await self._status.get_by_text(language, exact=True).wait_for()

    async def retype(self, line: int, text: str) -> None:
        """Replace a line of the open file with what is typed, and save."""
        await (await self._line_number(line)).click()
        # A click on the number selects the line with its end; that end has to stay.
        for key in ("ArrowLeft", "End", "Shift+Home"):
            await self.page.keyboard.press(key)
        await self.page.keyboard.type(text)
        await self.page.keyboard.press("Escape")
        dirty = self.page.locator(".tab.active.dirty")
        await dirty.wait_for()
        await self.page.keyboard.press("Control+S")
        await dirty.wait_for(state="detached")

    # -- debugging --------------------------------------------------------

    async def click_breakpoint(self, line: int) -> None:
        """Click left of a line's number, where a red dot appears."""
        number = await self._box(await self._line_number(line))
        margin = await self._box(self._editor.locator(".glyph-margin").first)
        x, y = margin["x"] + margin["width"] / 2, number["y"] + number["height"] / 2
        # The pale dot under the mouse says that a click will be understood; it comes with a
        # movement after the extensions have told which languages have breakpoints.
        hint = self._editor.locator(".codicon-debug-hint")
        async with asyncio.timeout(PATIENCE_S):
            while not await hint.count():
                await self.page.mouse.move(x + 1, y)
                await self.page.mouse.move(x, y)
        await self.page.mouse.click(x, y)
        await self._editor.locator(".codicon-debug-breakpoint").wait_for()

    async def f5(self, configuration: str = ATTACH_NAME) -> None:
        """Start the launch configuration that is chosen (at first, the first), or go on when
        stopped."""
        await self._status.get_by_text(configuration).wait_for()
        await self.page.keyboard.press("F5")

    async def shift_f5(self) -> None:
        """Stop."""
        await self.page.keyboard.press("Shift+F5")

    async def step_over(self) -> None:
        """F10: what is in focus goes one line on."""
        await self.page.keyboard.press("F10")

    async def restart(self) -> None:
        """The green circle: begin again what is in focus."""
        await self.page.keyboard.press("Control+Shift+F5")

    async def start(self, configuration: str) -> None:
        """Choose a launch configuration by the status bar, which starts it; F5 is for it then."""
        await self._status.get_by_text(ATTACH_NAME).click()
        rows = self.page.locator(".quick-input-list .monaco-list-row")
        await rows.get_by_text(configuration, exact=True).click()

    async def stopped_line(self) -> int:
        """The line that has the yellow bar, once one has."""
        handle = await self.page.wait_for_function(_STOPPED_LINE)
        line, colour = await handle.json_value()
        assert line, f"VS Code says: {colour}"
        red, green, blue = map(int, re.findall(r"\d+", colour)[:3])
        assert min(red, green) > 150 > blue, f"line {line} is not yellow but {colour}"
        return int(line)

    async def shows_variable(self, name: str, value: str, session: str = "") -> None:
        """Wait until the Variables view shows a local variable of the frame in focus like that.

        session: clicked again if the view shows something else. One that ends or pauses at that
        moment can take the focus away from the one that was clicked.
        """
        now = asyncio.get_running_loop().time
        clicked_s = now()
        rows = self.page.locator(".debug-variables .monaco-list-row")
        row = rows.filter(has=self.page.locator(".name", has_text=re.compile(rf"^{name}\W*$")))
        right = row.filter(has=self.page.locator(".value", has_text=_exactly(value)))
        collapsed = self.page.locator("[aria-label='Scope Locals'][aria-expanded=false]")
        try:
            async with asyncio.timeout(PATIENCE_S):
                # VS Code opens the first scope by itself, but not always.
                while not await right.count():
                    # Either may happen between the look and the click.
                    with contextlib.suppress(PlaywrightTimeout):
                        if await collapsed.count():
                            await collapsed.click(timeout=1000)
                        elif session and now() - clicked_s > 15:
                            await self.focus_session(session)
                            clicked_s = now()
                        await right.wait_for(timeout=1000)
        except TimeoutError:
            shown = await rows.all_inner_texts()
            raise AssertionError(f"no {name} = {value} among {shown}") from None

    async def shows_call_stack(self, *frames: str) -> None:
        """Wait until the Call Stack view shows these on top, each as `function, line N, file`."""
        rows = self.page.locator(".debug-call-stack [aria-label^='Stack Frame ']")
        shown: list[str] = []
        try:
            async with asyncio.timeout(PATIENCE_S):
                # VS Code asks for the top frame first, then for the others.
                while shown[: len(frames)] != list(frames):
                    await self.page.wait_for_timeout(50)
                    labels = await rows.evaluate_all("all => all.map(one => one.ariaLabel)")
                    shown = [label.removeprefix("Stack Frame ") for label in labels]
        except TimeoutError:
            raise AssertionError(f"the call stack is {shown}, not {list(frames)}") from None

    async def paused_sessions(self, count: int) -> list[str]:
        """The names of the sessions that are paused, once there are `count`: ranks, children.

        VS Code shows sessions in the Call Stack view only where there is more than one.
        """
        label = re.compile(r"Session (.*) (?:rank \d+ · \S+: |Paused on )\w+")
        found: list[str] = []
        try:
            async with asyncio.timeout(PATIENCE_S):
                while len(found) < count:
                    rows = await self.page.evaluate(_CALL_STACK)
                    found = [match[1] for row in rows if (match := label.fullmatch(row or ""))]
                    await self.page.wait_for_timeout(50)
        except TimeoutError:
            raise AssertionError(f"not {count} sessions are paused: {found}") from None
        return found

    async def shows_session(self, name: str, state: str) -> None:
        """Wait until the Call Stack view shows a session in this state."""
        whole = f"Session {name} {state}"
        await self.page.locator(f".debug-call-stack [aria-label='{whole}']").wait_for()

    async def stands(self, name: str, line: int) -> None:
        """Wait until a session, which has been in focus before, stands in that line."""
        seen: list[str] = []
        try:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    seen = await self.page.evaluate(_CALL_STACK)
                    of_it = itertools.dropwhile(lambda row: f"Session {name} " not in row, seen)
                    top = next(itertools.islice(of_it, 1, None), "")
                    if re.match(rf"Stack Frame .*, line {line}, ", top):
                        return
                    await self.page.wait_for_timeout(50)
        except TimeoutError:
            raise AssertionError(f"{name} is not in line {line}: {seen}") from None

    async def focus_session(self, name: str) -> None:
        """Click a session, so that what is shown is where that one stands."""
        view = self.page.locator(".debug-call-stack")
        row = view.locator(f"[aria-label^='Session {name} ']")
        async with asyncio.timeout(PATIENCE_S):
            while True:
                # The others may end meanwhile: the last one has no row, but its frames.
                with contextlib.suppress(PlaywrightTimeout):
                    if await row.count():
                        # On its name: on the right, buttons appear under the mouse, the first
                        # of them Continue.
                        name_of_it = row.locator(".name")
                        await name_of_it.click(position={"x": 5, "y": 5}, timeout=1000)
                        return
                    if not await view.locator("[aria-label^='Session ']").count():
                        top = view.locator("[aria-label^='Stack Frame ']").first
                        await top.locator(".label").click(timeout=1000)
                        return
                await self.page.wait_for_timeout(50)

    async def make_room(self) -> None:
        """More of the window for the Call Stack view: wider, and without Watch."""
        await self.page.get_by_role("button", name="Watch Section").click()
        edge = await self._box(self.page.locator(".part.sidebar"))
        x, y = edge["x"] + edge["width"] + 1, edge["y"] + edge["height"] / 3
        await self.page.mouse.move(x, y)
        await self.page.mouse.down()
        await self.page.mouse.move(x + 60, y, steps=3)
        await self.page.mouse.move(x + 120, y, steps=3)
        await self.page.mouse.up()

    async def dialog(self) -> str:
        """What the dialog says that has come up."""
        message = self.page.locator(".monaco-dialog-box .dialog-message-container")
        return await message.inner_text()

    async def notice(self, text: str) -> None:
        """Wait for a notification that says this."""
        said = self.page.locator(".notification-toast .notification-list-item-message")
        await said.filter(has_text=text).wait_for()

    async def answer(self, button: str) -> None:
        """Press a button of the dialog."""
        await self.page.locator(".monaco-dialog-box").get_by_role("button", name=button).click()

    async def shows_in_terminal(self, text: str) -> None:
        """Wait for a text in the terminal panel, wherever lines are broken."""
        rows = self.page.locator(".terminal.xterm .xterm-rows")
        await rows.filter(has_text=text).first.wait_for()

    async def session_over(self) -> None:
        """Wait until the session has ended: its toolbar has made way for the green arrow."""
        await self.page.locator(".start-debug-action-item").wait_for()
        await self.page.locator(".debug-top-stack-frame-line").wait_for(state="detached")

    # -- seeing -----------------------------------------------------------

    async def picture(self, name: str) -> Path:
        """A PNG of the window."""
        path = self._pictures / f"{name}.png"
        # Nothing under the mouse: it makes what it touches look different.
        await self.page.mouse.move(1, 1)
        await self.page.screenshot(path=path, animations="disabled", caret="initial")
        if wanted := os.environ.get(PICTURES):
            shutil.copy(path, Path(wanted) / path.name)
        return path

    # -- the page ---------------------------------------------------------

    @property
    def _editor(self) -> Locator:
        return self.page.locator(".editor-instance .monaco-editor").first

    async def _line_number(self, line: int) -> Locator:
        number = self._editor.locator(".margin .line-numbers", has_text=re.compile(f"^{line}$"))
        await number.wait_for()
        return number

    @staticmethod
    async def _box(element: Locator) -> dict[str, float]:
        box = await element.bounding_box()
        assert box is not None
        return dict(box)  # type: ignore[arg-type]


def _exactly(text: str) -> re.Pattern[str]:
    return re.compile(f"^{re.escape(text)}$")


@asynccontextmanager
async def window(
    parts: Parts, server: Server, folder: Path, pictures: Path
) -> AsyncIterator[Window]:
    """A browser with one window on the folder; gone afterwards."""
    async with async_playwright() as playwright:
        context = await playwright.chromium.launch_persistent_context(
            server.base / "browser",
            executable_path=parts.browser,
            args=["--disable-gpu", "--disable-dev-shm-usage", "--no-proxy-server", *_LOCAL_ONLY],
            env=dict(server.env),
            viewport={"width": 1200, "height": 750},
            color_scheme="light",
        )
        context.set_default_timeout(PATIENCE_S * 1000)
        page = context.pages[0]
        shown = Window(page, pictures)
        try:
            await page.goto(f"{server.url}/login?folder={folder}")
            await page.locator("input[name=password]").fill(server.password)
            await page.keyboard.press("Enter")
            await page.locator(".monaco-workbench").wait_for()
            yield shown
        finally:
            # A look at where it stood says more than the message of a failure.
            with contextlib.suppress(Exception):
                await page.screenshot(path=pictures / "last.png")
            await context.close()


#: Not even a name is asked for outside of this machine.
_LOCAL_ONLY = ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
