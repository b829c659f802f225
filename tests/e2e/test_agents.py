"""Agents in a browser: who is there, what they can, the inspector, and the registry of those elsewhere."""

import json
import re

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.e2e.conftest import Demo


@pytest.mark.proves("1-60")
def test_every_agent_is_listed_and_opens(page: Page) -> None:
    page.goto("./agents")
    rows = page.get_by_role("table").get_by_role("row")
    for name in ("Echo", "Reporter", "Billing", "Planner", "Releases", "Ship it", "Warehouse"):
        expect(rows.filter(has_text=re.compile(name, re.IGNORECASE)).first).to_be_visible()
    rows.filter(has_text="Warehouse").first.click()
    expect(page).to_have_url(re.compile("/agents/warehouse"))
    expect(page.get_by_role("complementary").get_by_text("Fulfil an order").first).to_be_visible()


def test_an_agent_is_tried_from_its_page(page: Page) -> None:
    page.goto("./agents/echo")
    panel = page.get_by_role("complementary")
    panel.get_by_role("textbox").first.fill("Tried from its page")
    panel.get_by_role("button", name=re.compile("^(Send|Try)")).first.click()
    page.goto("./tasks")
    row = page.get_by_role("table").get_by_role("row").filter(has_text="Tried from its page")
    expect(row).to_contain_text("Completed")


@pytest.mark.parametrize("dialect", ["v1", "v03"])
def test_the_inspector_shows_a_stream_frame_by_frame(page: Page, dialect: str) -> None:
    page.goto(f"./agents/echo/inspect?dialect={dialect}")
    operation = page.get_by_label("Operation")
    streaming = operation.locator("option").filter(has_text=re.compile("stream", re.IGNORECASE)).first
    operation.select_option(value=streaming.get_attribute("value"))
    page.get_by_role("region", name="Request").get_by_role("button", name="Send", exact=True).click()
    answer = page.get_by_role("region", name="Answer")
    expect(answer.get_by_text("200")).to_be_visible()
    frames = answer.get_by_role("listitem")
    expect(frames.filter(has_text=re.compile("completed", re.IGNORECASE)).first).to_be_visible()
    assert frames.count() >= 3


def test_a_card_is_checked_and_published(page: Page, demo: Demo) -> None:
    card = httpx.get(f"{demo.url}/agents/echo/.well-known/agent-card.json", timeout=30).json()
    page.goto("./registry")
    page.get_by_role("button", name="Publish").click()
    dialog = page.get_by_role("dialog", name="Publish an agent")
    text = dialog.get_by_label("Agent card (JSON)")
    text.fill('{"name": ')
    expect(dialog.get_by_role("button", name="Publish")).to_be_disabled()
    text.fill(json.dumps({"name": "No card"}))
    dialog.get_by_role("button", name="Check the card").click()
    expect(dialog.get_by_role("listitem").first).to_be_visible()
    text.fill(json.dumps(card))
    dialog.get_by_label("Name").fill("acme/echo")
    dialog.get_by_role("button", name="Check the card").click()
    expect(dialog.get_by_text("It can be published as")).to_be_visible()
    dialog.get_by_role("button", name="Publish").click()
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("complementary", name="Published agent")).to_contain_text("acme/echo")
    expect(page.get_by_role("table").get_by_role("row").filter(has_text="acme/echo")).to_have_count(1)
