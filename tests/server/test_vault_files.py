"""Bytes as a whole server answers in vault: at an address of its public name, on every node, for whoever has it."""

import base64
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from accord import Context, agent
from accord.engine.clock import Clock
from accord.http.asgi import App, Receive, Scope, Send
from accord.model import Part
from accord.server.application import Application
from accord.server.settings_loader import settings_of
from accord.testing import Response, call, lifespan
from tests.databases import emptied, postgres
from tests.environments import judge
from tests.server.conftest import HEADER, KNOWN, V1, get, rpc, said, serving
from tests.server.test_public_addresses import FORWARDED

__all__ = ["postgres"]

MEMORY = "sqlite://:memory:"
VAULT = {"X-A2A-Dialect": "vault"}
LARGE = b"\x01\x02" * 50_000


@agent(name="Maker", description="Makes files")
async def maker(ctx: Context) -> AsyncIterator[Part]:
    await ctx.artifact(Part(raw=LARGE, media_type="application/zip", filename="large.zip"), id="large")
    yield Part(raw=b"small", media_type="text/plain", filename="small.txt")


@pytest.fixture(params=["sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store of each kind."""
    if request.param == "postgres":
        return await emptied(request.getfixturevalue("postgres"))
    return f"sqlite:///{tmp_path}/accord.db"


def at(now: Callable[[], float], **settings: Any) -> Application:
    """Return an application that has its own time."""
    return Application([maker], settings_of({"store": MEMORY} | settings, "test", {}), clock=Clock(now=now))


async def begun(app: App, **headers: str) -> str:
    """Have files made, of files that are given; return the task's id."""
    given = {"raw": base64.b64encode(b"given").decode(), "filename": "given.bin"}
    message = said("go") | {"parts": [{"text": "go"}, given]}
    answer = await call(app, rpc("SendMessage", message=message), headers=V1 | headers)
    task: dict[str, Any] = answer.json()["result"]["task"]
    assert [part["raw"] for one in task["artifacts"] for part in one["parts"]] == [
        base64.b64encode(LARGE).decode(),
        base64.b64encode(b"small").decode(),
    ], "other dialects have bytes"
    identifier: str = task["id"]
    return identifier


async def task_of(app: App, identifier: str, path: str = "/", **headers: str) -> dict[str, Any]:
    """Return a task as the vault dialect has it."""
    answer = await call(app, rpc("tasks/get", id=identifier), path=path, headers=VAULT | headers)
    task: dict[str, Any] = answer.json()["result"]
    return task


def files_of(task: dict[str, Any]) -> dict[str, bytes]:
    """Return the addresses of a task's files, each with the bytes that have to be there."""
    given = next(part for part in task["messages"][0]["parts"] if part["type"] == "file")
    assert given["filename"] == "given.bin"
    large, small = task["artifacts"]
    assert [(one["type"], one["mediaType"]) for one in (large, small)] == [
        ("file", "application/zip"),
        ("file", "text/plain"),
    ]
    return {given["url"]: b"given", large["url"]: LARGE, small["url"]: b"small"}


async def fetched(app: App, url: str, **headers: str) -> Response:
    """Ask for a file as somebody does who knows nothing but its address."""
    return await get(app, urlsplit(url).path, headers=headers)


@pytest.mark.proves("B-02")
@pytest.mark.parametrize("blobs", ["table:", "dir"])
async def test_files_are_there_after_a_restart_and_on_another_node(store: str, blobs: str, tmp_path: Path) -> None:
    place = str(tmp_path / "blobs") if blobs == "dir" else blobs
    async with serving(maker, store=store, blobs=place) as app:
        identifier = await begun(app)
        files = files_of(await task_of(app, identifier))
        assert all(url.startswith("http://localhost:8000/files/") for url in files)
        async with serving(maker, store=store, blobs=place) as node:
            again = files_of(await task_of(node, identifier))
            for url, content in (files | again).items():
                for one in (app, node):
                    answer = await fetched(one, url)
                    assert (answer.status, answer.body) == (200, content)
    async with serving(maker, store=store, blobs=place) as app:
        assert [(await fetched(app, url)).body for url in files] == [*files.values()]
    async with serving(maker) as stranger:
        assert {(await fetched(stranger, url)).status for url in files} == {403}


@pytest.mark.proves("B-02", "2-33")
async def test_answers_lists_and_streams_have_the_same_addresses() -> None:
    app = at(lambda: 1_700_000_000.0, console={"enabled": False})  # addresses change with the hour
    async with lifespan(app):
        identifier = await begun(app)
        task = await task_of(app, identifier)
        listed = await call(app, rpc("tasks/list", includeArtifacts=True), headers=VAULT)
        assert listed.json()["result"]["tasks"] == [task]
        followed = await call(app, rpc("tasks/sendSubscribe", id=identifier), headers=VAULT)
        lines = followed.body.decode().splitlines()
        events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
        told = [event["artifact"]["url"] for event in events if "artifact" in event and "url" in event["artifact"]]
        assert told == [artifact["url"] for artifact in task["artifacts"]]
        assert judge("agentvault", "vault.py", [{"type": "Task", "json": task}]) == [None]
        for url, content in files_of(task).items():
            assert (await fetched(app, url)).body == content


@pytest.mark.proves("B-02")
async def test_file_addresses_grant_access_to_the_file_only() -> None:
    async with serving(maker, auth={"schemes": [HEADER]}) as app:
        identifier = await begun(app, **KNOWN)
        files = files_of(await task_of(app, identifier, **KNOWN))
        for url, content in files.items():
            assert (await fetched(app, url)).body == content
            name, _, last = url.rpartition("/")
            assert (await fetched(app, f"{name}A/{last}")).status == 403
        refused = await call(app, rpc("tasks/get", id=identifier), headers=VAULT)
        assert refused.status == 401
        assert (await fetched(app, "/files/")).status == 403


@pytest.mark.proves("B-02")
@pytest.mark.parametrize(
    ("server", "headers", "base"),
    [
        ({}, {"Host": "accord.example:81"}, "http://accord.example:81"),
        ({"behind_proxy": True}, FORWARDED, "https://agents.example/team"),
        ({"behind_proxy": True, "url": "https://me.example/x/"}, FORWARDED, "https://me.example/x"),
    ],
)
@pytest.mark.parametrize("path", ["/", "/a2a/", "/agents/maker/"])
async def test_addresses_have_the_name_that_cards_have(
    server: dict[str, Any], headers: dict[str, str], base: str, path: str
) -> None:
    async with serving(maker, server=server) as app:
        task = await task_of(app, await begun(app), path, **headers)
        for url, content in files_of(task).items():
            assert url.startswith(f"{base}/files/")
            path_here = url.removeprefix(base)
            assert (await get(app, path_here, headers=FORWARDED if server else {})).body == content


@pytest.mark.proves("B-02")
async def test_addresses_of_a_mounted_application_are_below_its_mount() -> None:
    async with serving(maker) as inner:

        async def mounted(scope: Scope, receive: Receive, send: Send) -> None:
            await inner({**scope, "root_path": "/bots"}, receive, send)

        identifier = await begun(inner)
        answer = await call(
            mounted, rpc("tasks/get", id=identifier), path="/bots/", headers=VAULT | {"Host": "accord.example"}
        )
        for url, content in files_of(answer.json()["result"]).items():
            assert url.startswith("http://accord.example/bots/files/")
            assert (await fetched(mounted, url)).body == content


@pytest.mark.proves("B-02")
async def test_how_long_an_address_is_good_is_a_setting() -> None:
    ahead = [0.0]
    app = at(lambda: 1_700_000_000.0 + ahead[0], server={"file_hours": 0.5})
    async with lifespan(app):
        files = files_of(await task_of(app, await begun(app)))
        for later, status in [(1_799.0, 200), (2 * 1_800.0, 410)]:
            ahead[0] = later
            assert {(await fetched(app, url)).status for url in files} == {status}
