"""A server that is killed while pages are open: they notice, come back, and show what happened meanwhile."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.e2e.conftest import Demo, Watched
from tests.e2e.test_chat import answer, ask

LEASE = {"ACCORD_ENGINE__LEASE_SECONDS": "2", "ACCORD_ENGINE__POLL_SECONDS": "0.2"}
"""How soon what a killed server did is taken up again."""

LATE_MS = 60_000
"""What has to wait for leases has more time."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Demo]:
    """A demonstration of its own, since it is killed; so slow that it is killed in the middle of an answer."""
    server = Demo(tmp_path, speed=5, **LEASE)
    yield server
    server.kill()


def test_pages_recover_and_show_missed_events(window: Watched, site: Demo) -> None:
    chat, tasks = window.context.new_page(), window.context.new_page()
    tasks.goto("./tasks")
    live = tasks.get_by_role("status").filter(has_text=re.compile("^(Live|Reconnecting|Connecting)$"))
    expect(live).to_have_text("Live")
    ask(chat, "Reporter", "Write a report about the night shift")
    expect(answer(chat)).to_contain_text("In short")
    expect(answer(chat)).to_have_attribute("aria-busy", "true")
    window.expects = re.compile("Failed to load resource")
    site.kill()
    expect(live).to_have_text("Reconnecting")
    expect(answer(chat)).to_contain_text("Waiting to resume")
    expect(answer(chat)).not_to_contain_text("Writing")
    expect(chat.get_by_role("log")).to_contain_text("appears here when the server is reachable again")
    expect(chat.get_by_role("log")).not_to_contain_text("The agent continues")
    back = Demo(site.folder, speed=50, port=site.port, **LEASE)
    try:
        back.send("Said while they were away", "away", at_once=True)
        expect(live).to_have_text("Live")
        rows = tasks.get_by_role("table").get_by_role("row")
        expect(rows.filter(has_text="Said while they were away")).to_contain_text("Completed")
        expect(rows.filter(has_text="night shift")).to_contain_text("Completed", timeout=LATE_MS)
        expect(answer(chat)).to_contain_text("Look again in four weeks", timeout=LATE_MS)
        expect(answer(chat)).to_have_attribute("aria-busy", "false")
        for heading in ("The night shift", "Week by week", "What stands out", "What to do"):
            expect(answer(chat).get_by_role("heading", name=heading)).to_have_count(1)
    finally:
        back.kill()


def test_a_page_that_was_never_loaded_is_waited_for(window: Watched, site: Demo) -> None:
    page = window.context.new_page()
    page.goto("./tasks")
    expect(page.get_by_role("heading", name="Tasks", exact=True)).to_be_visible()
    window.expects = re.compile("Failed to load resource")
    site.kill()
    page.get_by_role("navigation").get_by_role("link", name="Registry").click()
    expect(page).to_have_url(re.compile("/registry"))
    expect(page.get_by_role("status").filter(has_text="Reconnecting")).to_be_visible()
    back = Demo(site.folder, speed=50, port=site.port, **LEASE)
    try:
        expect(page.get_by_role("heading", name="Registry", exact=True)).to_be_visible(timeout=LATE_MS)
    finally:
        back.kill()


def test_text_is_readable_without_the_formatter(window: Watched, site: Demo) -> None:
    page = window.context.new_page()
    window.expects = re.compile("Failed to load resource")
    page.route("**/MarkdownBody-*.js", lambda route: route.abort(), times=1)
    with page.expect_event("requestfailed", lambda request: "MarkdownBody" in request.url):
        ask(page, "Reporter", "Write a report about the night shift")
    expect(answer(page).get_by_role("heading", name="The night shift")).to_be_visible()
    assert page.evaluate("performance.getEntriesByType('navigation')[0].type") == "navigate", "the page stays"
