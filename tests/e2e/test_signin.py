"""A server that wants to know who asks: pages send people to the sign-in, and show them what is theirs."""

import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.conftest import Watched
from tests.serve.running import Server, accord, said

SETTINGS = '[[auth.schemes]]\ntype = "api-keys"\n'


class Keys(NamedTuple):
    alice: str
    bob: str


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Keys]]:
    """A server with two people, each of whom has a task."""
    folder = tmp_path_factory.mktemp("closed")
    (folder / "accord.toml").write_text(SETTINGS)
    shown = [accord(folder, "apikeys", "create", "--owner", owner).stdout for owner in Keys._fields]
    keys = Keys(*(re.findall(r"ak_\S+", text)[-1] for text in shown))
    server = Server(folder)
    for owner, key in zip(Keys._fields, keys, strict=True):
        told = server.post("SendMessage", headers={"X-API-Key": key}, message=said(f"Something of {owner}", owner))
        assert told.status_code == 200, told.text
    yield server, keys
    server.kill()


@pytest.fixture(scope="module")
def site(closed: tuple[Server, Keys]) -> Server:
    return closed[0]


@pytest.fixture(scope="module")
def keys(closed: tuple[Server, Keys]) -> Keys:
    return closed[1]


@pytest.fixture(autouse=True)
def strangers_are_refused(window: Watched) -> None:
    """The browser notes every answer to somebody who has not signed in."""
    window.expects = re.compile("status of 401")


def present(page: Page, key: str) -> None:
    page.get_by_label("API key").fill(key)
    page.get_by_role("button", name="Sign in").click()


def test_a_key_grants_access_until_sign_out(window: Watched, keys: Keys) -> None:
    page = window.context.new_page()
    page.goto("./tasks?top=1")
    expect(page.get_by_role("heading", name="Sign in to Accord")).to_be_visible()
    present(page, "ak_wrong")
    expect(page.get_by_text("That was not right.")).to_be_visible()
    present(page, keys.alice)
    expect(page).to_have_url(re.compile(r"/console/tasks\?top=1$"))
    rows = page.get_by_role("table").get_by_role("row")
    expect(rows.filter(has_text="Something of alice")).to_have_count(1)
    expect(rows.filter(has_text="Something of bob")).to_have_count(0)
    expect(page.get_by_role("status").filter(has_text="Live")).to_be_visible()
    cookies = window.context.cookies()
    assert [cookie["httpOnly"] for cookie in cookies] == [True]
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in to Accord")).to_be_visible()
    page.goto("./tasks")
    expect(page.get_by_label("API key")).to_be_visible()


def test_events_of_others_are_hidden(window: Watched, site: Server, keys: Keys) -> None:
    page = window.context.new_page()
    page.goto("./tasks")
    present(page, keys.bob)
    rows = page.get_by_role("table").get_by_role("row")
    expect(rows.filter(has_text="Something of bob")).to_have_count(1)
    expect(page.get_by_role("status").filter(has_text="Live")).to_be_visible()
    for owner, key in (("alice", keys.alice), ("bob", keys.bob)):
        site.post("SendMessage", headers={"X-API-Key": key}, message=said(f"News of {owner}", f"news-{owner}"))
    expect(rows.filter(has_text="News of bob")).to_have_count(1)
    expect(rows.filter(has_text="of alice")).to_have_count(0)
