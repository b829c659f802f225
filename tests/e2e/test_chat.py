"""Talking to agents in a browser: plans, questions, answers that go on whatever happens to the page."""

import re
import sqlite3
from contextlib import closing
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.e2e.conftest import Demo, Watch, Watched, noted
from tests.serve.flowing import until


def ask(page: Page, agent: str, text: str) -> None:
    """Begin a chat with an agent."""
    page.goto("./chat")
    page.get_by_role("button", name=re.compile("^Agent: ")).click()
    page.get_by_role("option", name=re.compile(rf"^{agent}\b")).click()
    say(page, text)


def say(page: Page, text: str) -> None:
    page.get_by_role("textbox", name="Message").fill(text)
    page.get_by_role("button", name="Send", exact=True).click()


def answer(page: Page) -> Locator:
    """The latest answer."""
    return page.get_by_role("log").locator("article[aria-busy]").last


def chips(page: Page) -> Locator:
    return page.locator("[data-task]")


def posted(demo: Demo, task_id: str) -> list[Any]:
    """What the other server got for its calls of the webhook of a task here: the statuses of the answers."""
    with closing(sqlite3.connect(demo.folder / "accord" / "demo" / "here.db")) as here:
        (remote_id,) = here.execute("SELECT remote_id FROM remote WHERE task_id = ?", [task_id]).fetchone()
    with closing(sqlite3.connect(demo.folder / "accord" / "demo" / "elsewhere.db")) as elsewhere:
        found = elsewhere.execute("SELECT status FROM push_attempt WHERE task_id = ? ORDER BY id", [remote_id])
        return [status for (status,) in found]


@pytest.mark.proves("0-02", "0-13", "0-14", "0-26", "0-34", "0-49", "0-50", "0-51", "0-66")
def test_the_journey_from_a_prompt_to_a_webhook(page: Page, demo: Demo) -> None:
    ask(page, "Planner", "Send three keyboards to the Berlin office")
    chip = chips(page).first
    expect(chip).to_have_attribute("data-state", "submitted")
    task_id = chip.get_attribute("data-task") or ""
    expect(answer(page)).to_have_attribute("aria-busy", "false")
    page.evaluate("window.loadedOnce = true")
    states = noted(chip, "data-state")
    chip.get_by_role("button", name=re.compile("^Open the task")).click()
    canvas = page.get_by_role("complementary", name="Task")
    expect(canvas.get_by_text(task_id)).to_be_visible()
    expect(canvas.get_by_text("Submitted").first).to_be_visible()
    expect(canvas.locator("input, textarea, select, [contenteditable=true]")).to_have_count(0)  # only to be read
    canvas.get_by_role("button", name="Execute").click()
    expect(chip).to_have_attribute("data-state", "completed")
    expect(canvas.get_by_text("Completed").first).to_be_visible()
    expect(canvas.get_by_text("parcel").first).to_be_visible()
    shown = states.json_value()  # a snapshot of the end may overtake the report that work has started
    assert [state for state in shown if state != "working"] == ["submitted", "completed"]
    assert shown.count("working") <= 1
    assert page.evaluate("window.loadedOnce"), "the page was loaded again"
    assert set(until(lambda: posted(demo, task_id) or None)) == {204}


@pytest.mark.proves("0-22", "0-73")
def test_a_reloaded_page_resumes_the_stream(page: Page) -> None:
    ask(page, "Reporter", "Write a report about the search cluster")
    expect(answer(page)).to_contain_text("The search cluster")
    page.reload()
    expect(page.get_by_role("article", name="You")).to_contain_text("search cluster")
    expect(answer(page)).to_have_attribute("aria-busy", "false")
    expect(answer(page)).to_contain_text("Look again in four weeks")
    expect(page.get_by_role("article", name="Reporter")).to_have_count(1)


def test_reports_concern_the_conversation(page: Page) -> None:
    ask(page, "Reporter", "write about the tides")
    expect(answer(page).get_by_role("heading", name="The tides", exact=True)).to_be_visible()
    expect(answer(page)).to_contain_text("more about the tides than eight weeks ago")


def test_a_question_is_answered_in_place(page: Page) -> None:
    ask(page, "Billing", "Refund the late delivery")
    form = chips(page).last
    expect(form).to_have_attribute("data-state", "input-required")
    form.get_by_role("combobox").select_option(label="Blue Bottle")
    form.get_by_label("Amount in EUR").fill("40")
    form.get_by_role("button", name="Answer").click()
    expect(answer(page)).to_contain_text("40.00 EUR went back to Blue Bottle")


def test_decisions_look_the_same_on_every_page(page: Page) -> None:
    ask(page, "Ship it", "ship v1.2-rc.1, please")
    chip = chips(page).last
    expect(chip).to_have_attribute("data-state", "input-required")
    expect(answer(page)).to_contain_text("Publish 1.2-rc.1?")
    task_id = chip.get_attribute("data-task")
    for place in (None, "./inbox", f"./tasks/{task_id}", f"./runs/{task_id}"):
        if place is not None:
            page.goto(place)
        card = page.get_by_role("article").filter(has=page.get_by_text("ship v1.2-rc.1, please", exact=True))
        if place == "./inbox":
            card.get_by_role("button", name="ship v1.2-rc.1").click()
        expect(page.get_by_placeholder("Comment (optional)")).to_have_count(1)
        expect(page.get_by_role("button", name=re.compile("^(Approve|Reject)$"))).to_have_text(["Approve", "Reject"])


def test_missing_agents_are_reported(page: Page) -> None:
    page.goto("./chat?agent=nonsense")
    expect(page.get_by_role("log")).to_contain_text("There is no agent nonsense here")
    page.get_by_role("button", name=re.compile("^Agent: ")).click()
    page.get_by_role("option", name=re.compile(r"^Billing\b")).click()
    expect(page.get_by_role("log")).not_to_contain_text("There is no agent")


def test_inbox_approvals_disappear_for_all_users(watch: Watch, demo: Demo) -> None:
    task = demo.send("Deploy 3.1", "inbox", path="/agents/releases/", at_once=True)
    first, second = (watch().context.new_page() for _ in range(2))
    for page in (first, second):
        page.goto("./inbox")
        expect(page.get_by_role("article").filter(has_text="Deploy 3.1")).to_be_visible()
    card = first.get_by_role("article").filter(has_text="Deploy 3.1")
    card.get_by_role("button", name="Deploy 3.1").click()
    card.get_by_role("button", name="Approve").click()
    for page in (first, second):
        expect(page.get_by_role("article").filter(has_text="Deploy 3.1")).to_have_count(0)
    first.goto(f"./tasks/{task['id']}")
    expect(first.get_by_role("complementary").get_by_text("Completed").first).to_be_visible()


def test_eight_tabs_at_once(window: Watched, demo: Demo) -> None:
    pages = [window.context.new_page() for _ in range(8)]
    for page in pages:
        page.goto("./tasks")
        expect(page.get_by_role("status").filter(has_text="Live")).to_be_visible()
    demo.send("Seen by eight", "eight", at_once=True)
    for page in pages:
        expect(page.get_by_role("row").filter(has_text="Seen by eight")).to_contain_text("Completed")


def test_unsent_messages_are_not_shown_as_answered(window: Watched) -> None:
    page = window.context.new_page()
    ask(page, "Echo", "first")
    expect(answer(page)).to_contain_text("first")
    window.expects = re.compile("Failed to load resource|ERR_INTERNET_DISCONNECTED")
    window.context.set_offline(True)
    say(page, "second")
    log = page.get_by_role("log")
    expect(log).to_contain_text("your message may not have arrived")
    expect(log).not_to_contain_text("The agent continues")
    window.context.set_offline(False)
    page.get_by_role("button", name="Try again").click()
    expect(answer(page)).to_contain_text("second")
    expect(page.get_by_role("article", name="You").filter(has_text="second")).to_have_count(1)
