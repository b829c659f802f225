"""Every page: it opens by its address, wide and narrow, light and dark, and says what is in it."""

import re
from typing import Literal

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.conftest import NARROW, WIDE, Demo, Watch

PAGES = {
    "": "Start",
    "chat": "New chat",
    "inbox": "Inbox",
    "tasks": "Tasks",
    "runs": "Runs",
    "agents": "Agents",
    "deliveries": "Deliveries",
    "registry": "Registry",
}


@pytest.fixture(scope="module")
def busy(demo: Demo) -> dict[str, str]:
    """A server on which things have happened: ids of tasks by agent."""
    sent = {name: demo.send(f"Something for {name}", name, path=f"/agents/{name}/", at_once=True) for name in AGENTS}
    return {name: task["id"] for name, task in sent.items()}


AGENTS = ("echo", "reporter", "billing", "releases", "ship-it", "warehouse")


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("size", [WIDE, (1024, 768), NARROW], ids=["wide", "middle", "narrow"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_opens_by_its_address(watch: Watch, size: tuple[int, int], scheme: Literal["light", "dark"]) -> None:
    page = watch(size, scheme).context.new_page()
    for path, title in PAGES.items():
        page.goto(f"./{path}")
        expect(page.get_by_role("heading", name=title, exact=True, level=1)).to_be_visible()
        expect(page.get_by_role("status", name=re.compile("Loading"))).to_have_count(0)
        overflow = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert overflow <= 0, f"{path or 'start'} is wider than a window of {size[0]}"
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        light = sum(int(value) for value in re.findall(r"\d+", background)[:3])
        assert (light > 600) if scheme == "light" else (light < 200), background


def test_the_way_in_leads_a_browser_to_the_console(page: Page, demo: Demo) -> None:
    page.goto(demo.url)
    expect(page).to_have_url(re.compile("/console/"))


def test_a_task_opens_by_its_address(page: Page, busy: dict[str, str]) -> None:
    page.goto(f"./tasks/{busy['billing']}")
    canvas = page.get_by_role("complementary")
    expect(canvas.get_by_text("Input required").first).to_be_visible()
    expect(canvas.get_by_text(busy["billing"])).to_be_visible()


def test_filters_are_in_the_address(page: Page, busy: dict[str, str]) -> None:
    page.goto("./tasks?state=input-required")
    rows = page.get_by_role("table").get_by_role("row")
    expect(rows.filter(has_text="Something for billing")).to_have_count(1)
    expect(rows.filter(has_text="Something for echo")).to_have_count(0)
    page.reload()
    expect(rows.filter(has_text="Something for billing")).to_have_count(1)
    assert "state=" in page.url


def test_missing_pages_are_reported(page: Page) -> None:
    page.goto("./nowhere")
    expect(page.get_by_text("There is no page at this address")).to_be_visible()


def test_keys_lead_everywhere(page: Page) -> None:
    page.goto("./")
    expect(page.get_by_role("heading", name="Start")).to_be_visible()
    page.keyboard.press("g")
    page.keyboard.press("t")
    expect(page).to_have_url(re.compile("/tasks"))
    page.keyboard.press("Control+k")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.type("Agents")
    expect(page.get_by_role("dialog").get_by_role("option", selected=True)).to_contain_text("Agents")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/agents"))
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Go to")


def test_the_theme_is_remembered(page: Page) -> None:
    page.goto("./")
    for _ in range(3):
        page.get_by_role("button", name=re.compile("theme", re.IGNORECASE)).first.click()
        if page.evaluate("getComputedStyle(document.documentElement).colorScheme").startswith("dark"):
            break
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme").startswith("dark")
    page.reload()
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme").startswith("dark")
