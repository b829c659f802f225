"""What a browser has to load before the first page is there."""

import gzip
from urllib.parse import urlsplit

from playwright.sync_api import Page, Response, expect

MAX_BYTES = 250_000


def test_the_first_page_needs_at_most_250_kilobytes(page: Page) -> None:
    responses: list[Response] = []

    def note(response: Response) -> None:
        responses.append(response)

    page.context.on("response", note)
    page.goto("./tasks")
    expect(page.get_by_role("heading", name="Tasks", level=1)).to_be_visible()
    expect(page.get_by_role("status", name="Loading")).to_have_count(0)
    files = [one for one in responses if urlsplit(one.url).path.startswith("/console/")]
    assert {one.header_value("content-type") for one in files} >= {
        "text/html; charset=utf-8",
        "text/css; charset=utf-8",
    }
    sizes = {one.url: len(gzip.compress(one.body())) for one in files}
    assert any(url.endswith(".js") for url in sizes)
    assert sum(sizes.values()) <= MAX_BYTES, sorted(sizes.items(), key=lambda size: -size[1])
