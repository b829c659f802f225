"""A server that is killed while pages are open: they notice, come back, and show what happened meanwhile."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.e2e.conftest import Demo, Watched
from tests.e2e.test_chat import answer, ask

LEASE = {"ACCORD_ENGINE__LEASE_SECONDS": "2", "ACCORD_ENGINE__POLL_SECONDS": "0.2"}
"""How soon what a killed server did is taken up again."""

LATE_MS = 60_000
"""What has to wait for leases has more time."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """A demonstration of its own, since it is killed; so slow that it is killed in the middle of an answer."""
    server = Demo(tmp_path_factory.mktemp("killed"), speed=5, **LEASE)
    yield server
    server.kill()


def test_pages_recover_and_show_what_happened_meanwhile(window: Watched, site: Demo) -> None:
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
