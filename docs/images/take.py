"""Takes the pictures of the documentation: `.venv/bin/python -m docs.images.take`, from the project's folder.

It serves the demonstration, lets something happen on it, and photographs every page in Debian's Chromium, light and
dark. What is on the pictures is for a person to judge; no test looks at them.
"""

import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from playwright.sync_api import Browser, Page, expect, sync_playwright

from docs.images.png import small
from tests.e2e.conftest import CHROMIUM, Demo

HERE = Path(__file__).parent
WIDE, PHONE = (1440, 900), (390, 844)
SPEED = 3.0
PORT = 8000
"""It is on the pictures, and must be free."""

PLAN = "Report on the search cluster, deploy version 2.4 and send three keyboards to Berlin"


# --- what happens -----------------------------------------------------------------------------------------------------


STATUSES = {"/hooks/crm": 204, "/hooks/warehouse": 204, "/hooks/reports": 503, "/hooks/legacy": 410}


class Hooks(BaseHTTPRequestHandler):
    """Receivers of webhooks: one takes everything, one is busy, one is gone."""

    def do_POST(self) -> None:
        """Answer as the path says."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(STATUSES[self.path])
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def receiving() -> Iterator[int]:
    """Receive webhooks while the block runs, on the port that it is given."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Hooks) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def told(demo: Demo, agent: str, text: str, hook: str | None = None) -> str:
    """Tell an agent something, and return the id of the task."""
    configuration: dict[str, Any] = {"returnImmediately": True}
    if hook is not None:
        configuration["taskPushNotificationConfig"] = {"url": hook, "id": "main", "token": "of-the-receiver"}
    message = {"messageId": f"{agent} {text}", "role": "ROLE_USER", "parts": [{"text": text}]}
    answer = demo.post("SendMessage", path=f"/agents/{agent}/", message=message, configuration=configuration)
    task_id: str = answer.json()["result"]["task"]["id"]
    return task_id


def happened(demo: Demo, port: int) -> dict[str, str]:
    """Let a morning pass, and return the ids of some tasks."""
    told(demo, "echo", "Is anybody there?", f"http://localhost:{port}/hooks/crm")
    told(demo, "warehouse", "Ship the order of Blue Bottle")
    told(demo, "echo", "Sum up ticket 4711", f"http://localhost:{port}/hooks/warehouse")
    told(demo, "reporter", "Write a report about the night shift", f"http://localhost:{port}/hooks/reports")
    told(demo, "billing", "Refund Acme for the late delivery")
    told(demo, "releases", "Roll out the new search")
    return {
        "dead": told(demo, "echo", "Close ticket 4712", f"http://localhost:{port}/hooks/legacy"),
        "report": told(demo, "reporter", "Write a report about the checkout service"),
        "run": told(demo, "ship-it", "ship"),
    }


# --- pages ------------------------------------------------------------------------------------------------------------


def start(page: Page, _ids: dict[str, str]) -> None:
    """Show what there is."""
    page.goto("./")
    expect(page.get_by_role("heading", name="Start")).to_be_visible()


def chat(page: Page, ids: dict[str, str]) -> None:
    """Plan three tasks once, and have two of them done; the third wants a yes."""
    if "chat" not in ids:
        page.goto("./chat?agent=planner")
        page.get_by_role("textbox", name="Message").fill(PLAN)
        page.get_by_role("button", name="Send", exact=True).click()
        expect(page.get_by_role("button", name=re.compile("^Execute"))).to_have_count(3)
        for chip in page.locator("[data-task]").all():
            chip.get_by_role("button", name=re.compile("^Execute")).click()
        ids["chat"] = page.url
    page.goto(ids["chat"])
    for state, count in (("completed", 2), ("input-required", 1)):
        expect(page.locator(f"[data-task][data-state={state}]")).to_have_count(count)
    expect(page.get_by_role("log").get_by_role("listitem")).to_have_count(3)


def tasks(page: Page, ids: dict[str, str]) -> None:
    """Show a task that has made something, beside the others."""
    page.goto(f"./tasks/{ids['report']}")
    expect(page.get_by_role("complementary").get_by_text("Completed").first).to_be_visible()
    expect(page.get_by_role("heading", name="The checkout service")).to_be_visible()


def inbox(page: Page, _ids: dict[str, str]) -> None:
    """Show a question with its form."""
    page.goto("./inbox")
    page.get_by_role("article").filter(has_text="Refund Acme").get_by_role("button", name="Refund Acme").click()
    expect(page.get_by_label("Account")).to_be_visible()


def run(page: Page, ids: dict[str, str]) -> None:
    """Show a workflow that waits for a yes."""
    page.goto(f"./runs/{ids['run']}")
    expect(page.get_by_role("button", name=re.compile("^Approve")).first).to_be_visible()
    expect(page.locator(".react-flow__node").first).to_be_visible()


def agents(page: Page, _ids: dict[str, str]) -> None:
    """Show an agent beside the others."""
    page.goto("./agents/billing")
    expect(page.get_by_role("complementary").get_by_text("Refund").first).to_be_visible()


def inspector(page: Page, _ids: dict[str, str]) -> None:
    """Show a stream, frame by frame."""
    page.goto("./agents/echo/inspect?operation=SendStreamingMessage")
    page.get_by_role("button", name="Send as new").click()
    frames = page.get_by_role("region", name="Answer").get_by_role("listitem")
    expect(frames.filter(has_text=re.compile("completed", re.IGNORECASE)).first).to_be_visible()


def deliveries(page: Page, ids: dict[str, str]) -> None:
    """Show a webhook that was given up."""
    page.goto(f"./deliveries/{ids['dead']}/main")
    expect(page.get_by_role("complementary").get_by_text("The webhook answers 410").first).to_be_visible()


SCENES: tuple[tuple[str, Callable[[Page, dict[str, str]], None], tuple[int, int]], ...] = (
    ("chat", chat, WIDE),
    ("chat-phone", chat, PHONE),
    ("start", start, WIDE),
    ("tasks", tasks, WIDE),
    ("inbox", inbox, WIDE),
    ("run", run, WIDE),
    ("agents", agents, WIDE),
    ("inspector", inspector, WIDE),
    ("deliveries", deliveries, WIDE),
)


# --- pictures ---------------------------------------------------------------------------------------------------------


def take(browser: Browser, demo: Demo, ids: dict[str, str]) -> None:
    """Photograph every scene, light and dark."""
    for name, scene, (width, height) in SCENES:
        for scheme in ("light", "dark"):
            context = browser.new_context(
                viewport={"width": width, "height": height},
                color_scheme="dark" if scheme == "dark" else "light",
                base_url=f"{demo.url}/console/",
                reduced_motion="reduce",
            )
            page = context.new_page()
            scene(page, ids)
            expect(page.get_by_role("status", name=re.compile("Loading"))).to_have_count(0)
            file = HERE / f"{name}-{scheme}.png"
            file.write_bytes(small(page.screenshot(animations="disabled")))
            print(f"{file.name}: {file.stat().st_size:,} bytes")
            context.close()


def main() -> None:
    """Serve, and take all of them."""
    expect.set_options(timeout=90_000)
    with tempfile.TemporaryDirectory() as folder, receiving() as port:
        demo = Demo(Path(folder), speed=SPEED, port=PORT, ACCORD_PUSH__ALLOW_PRIVATE="1")
        try:
            ids = happened(demo, port)
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
                take(browser, demo, ids)
                browser.close()
        finally:
            demo.stop()
    print(f"{sum(file.stat().st_size for file in HERE.glob('*.png')):,} bytes in all")


if __name__ == "__main__":
    main()
