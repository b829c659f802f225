"""A workflow in a browser: its graph lives while it runs, waits for a person, and goes on."""

import re

from playwright.sync_api import Locator, Page, expect

from tests.e2e.conftest import Demo, Watched, noted


def mark(page: Page, step: str) -> Locator:
    """How the graph says that a step is going."""
    return page.locator(".react-flow__node").filter(has=page.get_by_text(step, exact=True)).get_by_role("img").first


def test_the_graph_of_a_run_is_live_and_asks(page: Page, demo: Demo) -> None:
    run = demo.send("ship", "run", path="/agents/ship-it/", at_once=True)["id"]
    page.goto(f"./runs/{run}")
    expect(mark(page, "sign-off")).to_have_accessible_name("Waits for approval")
    steps = {name: noted(mark(page, name), "aria-label") for name in ("sign-off", "publish", "announce")}
    page.get_by_role("button", name=re.compile("^Approve")).first.click()
    for step in ("version", "fetch", "lint", "test", "build", "sign-off", "publish", "announce"):
        expect(mark(page, step)).to_have_accessible_name("Completed")
    assert {name: seen.json_value() for name, seen in steps.items()} == {
        "sign-off": ["Waits for approval", "Completed"],
        "publish": ["Pending", "Running", "Completed"],
        "announce": ["Pending", "Running", "Completed"],
    }


def test_a_run_is_listed_and_opened_by_its_address(page: Page, demo: Demo) -> None:
    demo.send("ship", "listed", path="/agents/ship-it/", at_once=True)
    page.goto("./runs")
    page.get_by_role("table").get_by_role("row").filter(has_text="Ship it").first.click()
    expect(page).to_have_url(re.compile(r"/runs/\w"))
    expect(mark(page, "fetch")).to_be_visible()
    page.reload()
    expect(mark(page, "fetch")).to_be_visible()


def test_runs_are_links_and_missing_runs_are_reported(window: Watched, demo: Demo) -> None:
    run = demo.send("ship", "linked", path="/agents/ship-it/", at_once=True)["id"]
    page = window.context.new_page()
    page.goto("./runs")
    link = page.get_by_role("table").locator(f'a[href$="/runs/{run}"]')
    with window.context.expect_page() as opened:
        link.click(button="middle")
    expect(mark(opened.value, "fetch")).to_be_visible()
    expect(page).to_have_url(re.compile(r"/runs$"))
    window.expects = re.compile("404")
    page.goto("./runs/nonsense")
    expect(page.get_by_role("heading", name="There is no such run")).to_be_visible()
    expect(page.get_by_role("button", name="Try again")).to_have_count(0)
