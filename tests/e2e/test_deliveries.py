"""Webhooks in a browser: one that is refused is seen, looked into, and redelivered."""

import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from playwright.sync_api import Page, expect

from tests.serve.running import Server, said

GONE, TAKEN = 410, 204


class Receiver(ThreadingHTTPServer):
    """A webhook that answers as it is told."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.status = GONE
        self.url = f"http://127.0.0.1:{self.server_address[1]}/hook"


class Answering(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing: what was asked is in the browser."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("deliveries"), ACCORD_PUSH__ALLOW_PRIVATE="1")
    yield server
    server.kill()


def test_a_webhook_that_was_given_up_is_looked_into_and_redelivered(
    page: Page, site: Server, receiver: Receiver
) -> None:
    page.goto("./deliveries")
    expect(page.get_by_text("No webhooks yet")).to_be_visible()
    hook = {"taskPushNotificationConfig": {"url": receiver.url, "id": "w"}}
    site.post("SendMessage", message=said("Tell them"), configuration=hook)
    row = page.get_by_role("table").get_by_role("row").filter(has_text=receiver.url)
    expect(row).to_contain_text("Given up")
    expect(row).to_contain_text(str(GONE))
    row.click()
    panel = page.get_by_role("complementary", name="Webhook")
    expect(panel.get_by_text("The webhook answers 410").first).to_be_visible()
    panel.get_by_role("tab", name="Request").click()
    expect(panel.get_by_text(re.compile('"statusUpdate"|"task"|"status"')).first).to_be_visible()
    receiver.status = TAKEN
    panel.get_by_role("button", name="Redeliver").click()
    expect(row).to_contain_text("Delivered")
    expect(panel.get_by_text(str(TAKEN)).first).to_be_visible()
