"""An agent that means harm, on every page that shows something of it: nothing runs, nothing is asked elsewhere."""

import re
import select
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.conftest import NARROW, WIDE, Watch, Watched
from tests.e2e.test_chat import answer, ask
from tests.serve.running import Server

HOSTILE = Path(__file__).parent / "hostile.py"

HELD_BACK = re.compile("Content Security Policy|Blocked script execution|NotSameOrigin|Refused to execute the redirect")
"""What the browser notes when it has held something of the agent's back."""


LINKS = """
[...document.querySelectorAll('a[href], iframe[src], form[action]')].map((one) => one.href ?? one.src ?? one.action)
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("hostile"), f"{HOSTILE}:mallory")
    yield server
    server.kill()


@pytest.fixture
def elsewhere() -> Iterator[str]:
    """An address at which a page has nothing to look for; fails the test if anybody comes."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        came, _, _ = select.select([listening], [], [], 0)
        assert not came, "something was asked elsewhere"


def is_unharmed(page: Page) -> None:
    assert page.evaluate("window.__pwned") is None
    links = page.evaluate(LINKS)
    assert [link for link in links if link.startswith(("javascript:", "data:", "vbscript:"))] == []
    assert page.evaluate("document.querySelectorAll('#root script, #root [onerror], #root [onload]').length") == 0


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_the_task_of_a_hostile_agent_can_be_read(
    watch: Watch, site: Server, elsewhere: str, size: tuple[int, int]
) -> None:
    window = watch(size)
    window.expects = HELD_BACK
    page = window.context.new_page()
    task = site.send(f"Do harm {elsewhere}", f"task-{size[0]}", at_once=True)
    page.goto(f"./tasks/{task['id']}")
    canvas = page.get_by_role("complementary")
    expect(canvas.get_by_text("Input required").first).to_be_visible()
    expect(canvas.get_by_text("After all of it").first).to_be_visible()
    frames = canvas.locator("iframe")
    expect(frames).to_have_count(2)
    for number in range(2):
        frames.nth(number).scroll_into_view_if_needed()
        expect(frames.nth(number).content_frame.get_by_text("Only a page")).to_be_visible()
        assert frames.nth(number).get_attribute("sandbox") == ""
    expect(canvas.locator("img[src*='/files/']").first).to_be_attached()
    expect(canvas.get_by_role("link", name="report")).not_to_contain_text("\u202e")
    is_unharmed(page)
    overflow = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert overflow <= 0, "a long word makes the page wider than the window"
    canvas.get_by_role("button", name=re.compile("^Close")).click()
    expect(page.get_by_role("heading", name="Tasks", level=1)).to_be_visible()


def test_a_chat_with_a_hostile_agent_can_be_read(window: Watched, elsewhere: str) -> None:
    window.expects = HELD_BACK
    page = window.context.new_page()
    ask(page, "Mallory", f"Do harm in a chat {elsewhere}")
    expect(answer(page)).to_have_attribute("aria-busy", "false")
    expect(answer(page).get_by_text("After all of it").first).to_be_visible()
    is_unharmed(page)


def test_lists_show_the_words_of_a_hostile_agent_as_words(window: Watched, site: Server, elsewhere: str) -> None:
    window.expects = HELD_BACK
    page = window.context.new_page()
    site.send(f"Do harm {elsewhere}", "lists", at_once=True)
    for path in ("", "inbox", "tasks", "chat", "agents", "agents/mallory-img-src-x-onerror-window-pwned-image"):
        page.goto(f"./{path}")
        expect(page.get_by_role("main").get_by_text("<img src=x onerror=").filter(visible=True).first).to_be_visible()
        is_unharmed(page)


def test_files_are_given_as_files_and_never_as_pages(window: Watched, site: Server, elsewhere: str) -> None:
    window.expects = HELD_BACK
    page = window.context.new_page()
    task = site.send(f"Do harm {elsewhere}", "files", at_once=True)
    page.goto(f"./tasks/{task['id']}")
    expect(page.get_by_role("complementary").get_by_text("Input required").first).to_be_visible()
    for artifact in (4, 5, 6):
        with page.expect_download() as downloaded:
            page.evaluate(
                "(address) => { location.href = address }", f"{site.url}/api/tasks/{task['id']}/files/{artifact}/0"
            )
        assert not set(downloaded.value.suggested_filename) & {"/", "\u202e", "<"}
    page.goto(f"{site.url}/api/tasks/{task['id']}/files/5/0?inline=1")
    expect(page.get_by_text("Only a page")).to_be_visible()
    assert page.url.startswith(site.url)
    assert page.evaluate("window.__pwned") is None


def test_a_failed_task_shows_its_exception_on_this_machine(page: Page) -> None:
    ask(page, "Mallory", "raise")
    chip = page.locator('[data-task][data-state="failed"]')
    expect(chip).to_contain_text("The agent failed")
    expect(chip).to_contain_text("ValueError: <script>window.__pwned = 'script'</script>")
    task_id = chip.get_attribute("data-task")
    page.goto(f"./tasks/{task_id}")
    canvas = page.get_by_role("complementary", name="Task")
    expect(canvas).to_contain_text("ValueError: <script>")
    canvas.get_by_text("Traceback", exact=True).first.click()
    expect(canvas.get_by_label("Traceback")).to_contain_text("in mallory")
    assert page.evaluate("window.__pwned") is None
