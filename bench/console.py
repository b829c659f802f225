"""The console in a browser: how long after a click on its address the list of 100,000 tasks is there.

Debian's Chromium asks a server in a process of its own. The browser's own clock is read, from the begin of the
navigation to the first row that has a size, with nothing cached and with everything.
"""

import asyncio
import shutil
import statistics
import sys

import uvloop
from playwright.async_api import Browser, BrowserContext, async_playwright

from accord.storage.address import open_store
from bench.feed import STORED, filled
from bench.report import Table, Target
from bench.server import Server, running
from bench.setting import SQLITE, Setting
from bench.timing import Measured

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or "/usr/bin/chromium"

LATE_SECONDS = 30.0

ROW = "first row ms"
COLD, WARM = "nothing cached", "all files cached"

WATCH = """
window.listed = new Promise((resolve) => {
  const look = () => {
    const row = document.querySelector("[role=row][data-index]");
    if (row && row.getBoundingClientRect().height > 0) requestAnimationFrame(() => resolve(performance.now()));
    else requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
});
"""
"""Looks once for each frame, and waits for the one that shows the row."""


def _serving(port: int, database: str) -> list[str]:
    return [sys.executable, "-m", "accord", "serve", "--port", str(port), "--store", database]


async def _opened(context: BrowserContext, port: int) -> float:
    page = await context.new_page()
    await page.add_init_script(WATCH)
    await page.goto(f"http://localhost:{port}/console/tasks")
    async with asyncio.timeout(LATE_SECONDS):
        taken: float = await page.evaluate("window.listed")
    await page.close()
    return taken


async def _round(browser: Browser, port: int) -> dict[str, float]:
    context = await browser.new_context()
    try:
        return {name: await _opened(context, port) for name in (COLD, WARM)}
    finally:
        await context.close()


async def measured(setting: Setting) -> dict[str, Measured]:
    database = setting.database(SQLITE)
    async with open_store(database, lambda _: None) as store:
        await filled(store, setting.size(STORED, 2000))
    async with running(Server("accord", _serving, SQLITE), database) as port, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        rounds = [await _round(browser, port) for _ in range(setting.rounds(5))]
        await browser.close()
    return {name: {ROW: statistics.median(taken[name] for taken in rounds)} for name in (COLD, WARM)}


def run(setting: Setting) -> list[Table]:
    found = uvloop.run(measured(setting))
    return [
        Table(
            f"The page of {setting.size(STORED, 2000):,} tasks",
            "the browser has",
            (ROW,),
            found,
            tuple(Target(name, ROW, at_most=1000) for name in (COLD, WARM)),
            (f"Tasks, opened by its address in Chromium; the store is {SQLITE}. {ROW} is when a row of it is shown.",),
        )
    ]
