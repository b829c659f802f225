"""A real browser, Debian's Chromium, on a real server: what people see when they use the console.

Whatever page a test opens, nothing may be written to the browser's console as an error, no exception may be lost, and
nothing may be asked of another host: that is checked after every test.
"""

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    JSHandle,
    Locator,
    Page,
    Request,
    expect,
    sync_playwright,
)

from tests.serve.running import Server

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or "/usr/bin/chromium"
"""Playwright's own download is not used: `.ci/run` installs the system's."""

WIDE, NARROW = (1440, 900), (390, 844)

WAIT_MS = 20_000
"""For machines that are busy: what is waited for is there in a fraction of a second."""

expect.set_options(timeout=WAIT_MS)


class Demo(Server):
    """`accord demo`."""

    verb = ("demo",)

    def __init__(self, folder: Path, speed: float, **more: Any) -> None:
        self.folder = folder
        super().__init__(folder, "--speed", f"{speed:g}", **more)


class Watched:
    """A window of the browser, and what must not happen in it."""

    def __init__(self, context: BrowserContext, host: str) -> None:
        self.context = context
        self.wrong: list[str] = []
        self.expects: re.Pattern[str] | None = None
        self._host = host
        context.on("console", self._said)
        context.on("weberror", lambda error: self.wrong.append(f"exception: {error.error}"))
        context.on("request", self._asked)
        context.on("requestfailed", self._held_back)

    def _said(self, message: ConsoleMessage) -> None:
        # A test that has the server away, or attacks a page, expects that to be noted; nothing else is forgiven.
        is_expected = self.expects is not None and self.expects.search(message.text)
        if message.type == "error" and not is_expected:
            self.wrong.append(f"console: {message.text} ({message.location.get('url', '')})")

    def _asked(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme in ("http", "https", "ws", "wss") and parts.netloc != self._host:
            self.wrong.append(_asked_elsewhere(request))

    def _held_back(self, request: Request) -> None:
        # The page wanted it and its policy did not let it: nothing left the browser.
        if request.failure == "csp" and (note := _asked_elsewhere(request)) in self.wrong:
            self.wrong.remove(note)


def _asked_elsewhere(request: Request) -> str:
    return f"asked of another host: {request.url}"


NOTED = """([element, attribute]) => {
  const noted = [element.getAttribute(attribute)];
  const note = () => noted.at(-1) !== element.getAttribute(attribute) && noted.push(element.getAttribute(attribute));
  new MutationObserver(note).observe(element, { attributes: true });
  return noted;
}"""


def noted(shown: Locator, attribute: str) -> JSHandle:
    """Keep every value that an attribute has from now on: some last for less than a test takes to look."""
    return shown.page.evaluate_handle(NOTED, [shown.element_handle(), attribute])


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """The demonstration, quick enough not to be waited for and slow enough to be watched; tests share it."""
    server = Demo(tmp_path_factory.mktemp("demo"), speed=20)
    yield server
    server.kill()


@pytest.fixture(scope="module")
def site(request: pytest.FixtureRequest) -> Server:
    """The server whose pages are opened: the demonstration, unless a module has one of its own."""
    server: Demo = request.getfixturevalue("demo")
    return server


Watch = Callable[..., Watched]


@pytest.fixture
def watch(browser: Browser, site: Server) -> Iterator[Watch]:
    """Makes windows, which share nothing with each other, and looks afterwards whether anything was wrong."""
    made: list[Watched] = []

    def window(size: tuple[int, int] = WIDE, scheme: Literal["light", "dark"] = "light") -> Watched:
        context = browser.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, base_url=f"{site.url}/console/"
        )
        context.set_default_timeout(WAIT_MS)
        made.append(Watched(context, urlsplit(site.url).netloc))
        return made[-1]

    yield window
    wrong = [problem for one in made for problem in one.wrong]
    for one in made:
        one.context.close()
    assert wrong == []


@pytest.fixture
def window(watch: Watch) -> Watched:
    return watch()


@pytest.fixture
def page(window: Watched) -> Page:
    return window.context.new_page()
