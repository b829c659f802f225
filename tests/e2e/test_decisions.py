"""Decisions and questions in a browser: nothing is approved by accident, and every question has its form."""

import re

import httpx
from playwright.sync_api import Locator, Page, expect

from tests.e2e.conftest import Demo
from tests.e2e.test_chat import ask, chips


def ask_approval(demo: Demo, title: str, key: str) -> str:
    task_id: str = demo.send(title, key, path="/agents/releases/", at_once=True)["id"]
    return task_id


def waiting_card(page: Page, title: str) -> Locator:
    return page.get_by_role("article").filter(has_text=title)


def is_waiting(page: Page, task_id: str) -> bool:
    return bool(page.evaluate("id => fetch(`/api/tasks/${id}`).then(r => r.json()).then(t => t.waiting)", task_id))


def test_a_held_key_approves_nothing_in_the_inbox(page: Page, demo: Demo) -> None:
    tasks = {title: ask_approval(demo, title, title) for title in ("Deploy 7.1", "Deploy 7.2")}
    page.goto("./inbox")
    for title in tasks:
        expect(waiting_card(page, title)).to_be_visible()
    expect(page.get_by_placeholder("Comment (optional)")).to_have_count(0)  # nothing is selected by itself
    page.keyboard.press("a")
    expect(page.get_by_role("dialog")).to_have_count(0)
    waiting_card(page, "Deploy 7.1").get_by_role("button", name="Deploy 7.1").click()
    page.keyboard.down("a")
    for _ in range(20):
        page.keyboard.down("a")  # Playwright sends a repeated key for a key that is down
    page.keyboard.up("a")
    dialog = page.get_by_role("dialog", name='Approve "Deploy 7.1"?')
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    assert all(is_waiting(page, task_id) for task_id in tasks.values())
    page.keyboard.press("a")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status").filter(has_text="Approved: Deploy 7.1")).to_be_visible()
    expect(waiting_card(page, "Deploy 7.1")).to_have_count(0)
    page.keyboard.press("a")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert is_waiting(page, tasks["Deploy 7.2"])


def test_the_next_question_of_a_task_is_not_selected_by_itself(page: Page, demo: Demo) -> None:
    task_id = demo.send("Three days off", "next", path="/agents/trip/", at_once=True)["id"]
    page.goto("./inbox")
    waiting_card(page, "Three days off").get_by_role("button", name="Three days off").click()
    expect(waiting_card(page, "Three days off").get_by_role("textbox")).to_be_visible()
    reply = {"text": "Rome"}  # as another user of the inbox answers
    assert httpx.post(f"{demo.url}/api/tasks/{task_id}/reply", json=reply).status_code == 200
    expect(waiting_card(page, "Three days off")).to_contain_text("Book three days in Rome?")
    expect(waiting_card(page, "Three days off").get_by_role("button", name="Approve")).to_have_count(0)
    page.keyboard.press("a")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert is_waiting(page, task_id)


def test_a_message_decides_no_approval_in_a_chat(page: Page, demo: Demo) -> None:
    ask(page, "Releases", "Deploy 8.1")
    chip = chips(page).last
    expect(chip).to_have_attribute("data-state", "input-required")
    composer = page.get_by_role("textbox", name="Message")
    composer.fill("What is in it?")
    expect(composer).to_have_accessible_description(re.compile('"Deploy 8.1" waits for your decision'))
    expect(page.get_by_role("button", name="Send", exact=True)).to_be_disabled()
    composer.press("Enter")
    expect(composer).to_have_value("What is in it?")
    assert is_waiting(page, chip.get_attribute("data-task") or "")
    chip.get_by_role("button", name="Approve").click()
    expect(page.get_by_role("button", name="Send", exact=True)).to_be_enabled()
    expect(page.get_by_role("log")).to_contain_text("all 3 regions answer")
    expect(composer).to_have_value("What is in it?")
    expect(page.get_by_role("button", name="Copy the answer").last).to_be_visible()
    expect(page.get_by_role("button", name="Answer again")).to_have_count(0)  # the decision is no first message


def test_buttons_stand_below_the_question_and_not_below_old_progress(page: Page, demo: Demo) -> None:
    ask(page, "Planner", "Deploy 8.2")
    chip = chips(page).first
    task_id = chip.get_attribute("data-task")
    old = page.evaluate("id => fetch(`/api/tasks/${id}`).then(r => r.json())", task_id)
    old["task"]["status"]["message"] = {"parts": [{"text": "Checking what would change"}]}
    page.route(f"**/api/tasks/{task_id}", lambda route: route.fulfill(json=old))  # a view that is never up to date
    page.evaluate("id => fetch(`/api/tasks/${id}/execute`, {method: 'POST'})", task_id)
    expect(chip.get_by_role("button", name="Approve")).to_be_visible()
    expect(chip).to_contain_text("Deploy 8.2? 14 changes, all tests passed, three regions.")
    expect(chip).not_to_contain_text("Checking what would change")


def test_a_step_runs_again_only_after_the_user_saw_which(page: Page, demo: Demo) -> None:
    run = demo.send("ship 8.3", "again", path="/agents/ship-it/", at_once=True)["id"]
    page.goto(f"./runs/{run}?step=sign-off")
    page.get_by_role("button", name="Approve").click()
    page.goto(f"./runs/{run}?step=publish")
    page.get_by_role("button", name="Re-run from here").click()
    dialog = page.get_by_role("dialog", name="Re-run from publish?")
    expect(dialog).to_contain_text("Run again: publish, announce")
    expect(dialog).to_contain_text("The approval of sign-off stays good and is not asked for again.")
    dialog.get_by_role("button", name="Keep as it is").click()
    expect(page).to_have_url(re.compile(run))
    page.get_by_role("button", name="Re-run from here").click()
    dialog.get_by_role("button", name="Run 2 steps again").click()
    expect(page).not_to_have_url(re.compile(run))


def test_answering_again_asks_first_and_cancels_the_open_task(page: Page, demo: Demo) -> None:
    ask(page, "Releases", "Deploy 8.4")
    expect(chips(page).last).to_have_attribute("data-state", "input-required")
    task_id = chips(page).last.get_attribute("data-task") or ""
    page.get_by_role("button", name="Answer again").click()
    dialog = page.get_by_role("dialog", name="Cancel the open task and answer again?")
    expect(dialog).to_contain_text('"Deploy 8.4" has not ended: it waits for your answer.')
    dialog.get_by_role("button", name="Keep as it is").click()
    assert is_waiting(page, task_id)
    page.get_by_role("button", name="Answer again").click()
    dialog.get_by_role("button", name="Cancel it and answer again").click()
    chip = chips(page).last
    expect(chip).not_to_have_attribute("data-task", task_id)
    expect(chip).to_have_attribute("data-state", "input-required")
    assert not is_waiting(page, task_id)


def test_replanning_confirms_and_cancels_planned_tasks(page: Page, demo: Demo) -> None:
    ask(page, "Planner", "Deploy 8.5")
    chip = chips(page).first
    task_id = chip.get_attribute("data-task") or ""
    chip.get_by_role("button", name="Execute").click()
    expect(chip.get_by_role("button", name="Approve")).to_be_visible()
    page.get_by_role("button", name="Answer again").click()
    dialog = page.get_by_role("dialog", name="Cancel the open task and answer again?")
    expect(dialog).to_contain_text('"Deploy 8.5" has not ended: it waits for your answer.')
    dialog.get_by_role("button", name="Cancel it and answer again").click()
    expect(chips(page).first).not_to_have_attribute("data-task", task_id)
    assert not is_waiting(page, task_id)


def test_graph_approvals_appear_once_with_buttons(page: Page, demo: Demo) -> None:
    ask(page, "Trip", "Plan three days in Rome")
    log, chip = page.get_by_role("log"), chips(page).last
    expect(chip.get_by_role("button", name="Approve")).to_be_visible()
    expect(log.get_by_text("Book three days in Rome?")).to_have_count(1)
    expect(log).not_to_contain_text("approval")
    expect(log).not_to_contain_text(re.compile("[0-9a-f]{8}-[0-9a-f]{4}"))
    chip.get_by_role("button", name="Approve").click()
    expect(log).to_contain_text("It is booked.")
