"""What a server authenticates with elsewhere: its file, its variables, and what its store keeps sealed."""

import base64
import os
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from accord.a2a import Caller
from accord.agents.echo import echo
from accord.agents.remote import ReportMode
from accord.client.credentials import Credential, KeyManagementError
from accord.model import PushConfig
from accord.server.agents import remote_agents
from accord.server.application import Application, to_a2a
from accord.server.credentials import own_keys, rotate_keys, sealed_keys
from accord.server.settings import CredentialSettings, RemoteSettings, Settings
from accord.server.settings_loader import BadSettings
from accord.storage import schema
from accord.storage.address import open_store, parse_address
from accord.testing import lifespan
from accord.testing.inprocess import Running
from tests.client.auth.conftest import serving
from tests.client.auth.test_served import HEADER, SECRET
from tests.serve.conftest import postgres, store_url
from tests.server.conftest import send, text_of

__all__ = ["postgres", "store_url"]

STORED, KEPT = Credential(api_key="of the store"), Credential(api_key="of a variable")


def new_key() -> str:
    return base64.b64encode(os.urandom(32)).decode()


async def put(url: str, settings: CredentialSettings) -> None:
    async with open_store(parse_address(url)) as store:
        await schema.upgrade_schema(store)
        await sealed_keys(store, settings).put("", "svc", STORED)
        await sealed_keys(store, settings).put("", "both", STORED)
        await sealed_keys(store, settings).put("acme", "theirs", STORED)


async def test_the_store_is_searched_after_files_and_variables(store_url: str, tmp_path: Path) -> None:
    settings = CredentialSettings(keys=(new_key(),))
    await put(store_url, settings)
    (tmp_path / "keys.json").write_text('{"filed": "of a file"}')
    env = {"ACCORD_KEY_BOTH": "of a variable", "ACCORD_KEYS": str(tmp_path / "keys.json")}
    keys = await own_keys(Settings(store=store_url, credentials=settings), env)
    assert [keys.find(id) for id in ("SVC", "both", "theirs", "nowhere")] == [STORED, KEPT, None, None]
    assert keys.find("filed") == Credential(api_key="of a file")
    without = await own_keys(Settings(store=store_url), env)
    assert [without.find(id) for id in ("svc", "both")] == [None, KEPT]


async def test_unreadable_sealed_credentials_are_errors(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/accord.db"
    await put(url, CredentialSettings(keys=(new_key(),)))
    with pytest.raises(KeyManagementError, match="Unknown sealing key"):
        await own_keys(Settings(store=url, credentials=CredentialSettings(keys=(new_key(),))), {})
    with pytest.raises(BadSettings, match="key_file"):
        await own_keys(Settings(store=url, credentials=CredentialSettings(key_file=str(tmp_path / "none"))), {})


async def test_a_store_in_memory_has_nothing_from_before() -> None:
    settings = Settings(store="sqlite://:memory:", credentials=CredentialSettings(keys=(new_key(),)))
    assert (await own_keys(settings, {"ACCORD_KEY_BOTH": "of a variable"})).find("both") == KEPT


async def test_remote_agents_use_stored_credentials(tmp_path: Path) -> None:
    url, settings = f"sqlite:///{tmp_path}/accord.db", CredentialSettings(keys=(new_key(),))
    async with serving(HEADER) as elsewhere:
        async with open_store(parse_address(url)) as store:
            await schema.upgrade_schema(store)
            await sealed_keys(store, settings).put("", "partner", Credential(api_key=SECRET))
        (far,) = remote_agents(
            Settings(
                store=url,
                credentials=settings,
                remotes={"far": RemoteSettings(url=elsewhere.url, key="partner", mode=ReportMode.SUBSCRIBE)},
            ),
            {},
        )
        app = to_a2a(far, store=url)
        async with lifespan(app):
            task = await send(app, "one two")
            assert "artifacts" in task, task["status"]
            assert text_of(task).split() == ["one", "two"]


def database(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.glob("accord.db*"))


async def test_server_with_keys_stores_no_secret_of_a_webhook(tmp_path: Path) -> None:
    url, key = f"sqlite:///{tmp_path}/accord.db", new_key()
    for keys, is_there in (((key,), False), ((), True)):
        app = Application([echo], Settings(store=url, credentials=CredentialSettings(keys=keys)))
        async with app.lifespan():
            a2a = Running(app, Caller(), 30)
            task = await a2a.send_text("x")
            await a2a.service.push_set(PushConfig(url="https://a.example/", task_id=task.id, token=SECRET), Caller())
        assert (SECRET.encode() in database(tmp_path)) is is_there
    settings = Settings(store=url, credentials=CredentialSettings(keys=("not a key",)))
    with pytest.raises(BadSettings, match=r"credentials\.keys"):
        async with Application([echo], settings).lifespan():
            pass
    async with open_store(parse_address(url)) as store:
        assert await rotate_keys(store, CredentialSettings(keys=(key,))) == 1


@pytest.mark.parametrize("named", ["good.example", "good_example", "both"])
async def test_remote_agent_gets_no_credential_that_its_card_names(tmp_path: Path, named: str) -> None:
    """A server looks the id up in its variables, its file and its store; none of them is for the host of the card."""
    received: list[tuple[str, str]] = []
    url, settings = f"sqlite:///{tmp_path}/accord.db", CredentialSettings(keys=(new_key(),))
    await put(url, settings)
    (tmp_path / "keys.json").write_text('{"both": "of a file"}')

    async def hostile(request: web.Request) -> web.Response:
        received.extend(request.headers.items())
        if request.method == "POST":
            return web.json_response({"jsonrpc": "2.0", "id": 1, "error": {"code": -32001, "message": "no"}})
        card: dict[str, object] = {
            "schemaVersion": "1.0",
            "humanReadableId": named,
            "agentVersion": "1",
            "name": "n",
            "description": "d",
        }
        card |= {"url": f"http://{request.host}/", "provider": {"name": "p"}, "capabilities": {"a2aVersion": "0.2"}}
        scheme = {"scheme": "apiKey", "service_identifier": named}
        return web.json_response(card | {"authSchemes": [scheme]})

    env = {"ACCORD_KEY_GOOD_EXAMPLE": "of a variable", "ACCORD_KEYS": str(tmp_path / "keys.json")}
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", hostile)
    async with TestServer(app) as server:
        remote = RemoteSettings(url=str(server.make_url("/")), mode=ReportMode.POLL)
        options = Settings(store=url, credentials=settings, remotes={"far": remote})
        (far,) = remote_agents(options, env)
        own = to_a2a(far, store=url)
        async with lifespan(own):
            task = await send(own, "one two")
        assert "the credential" in str(task["status"]), task["status"]
        assert f"accord creds set {named} --kind hosts --host" in str(task["status"])
    assert received
    assert not [value for _, value in received if "of a" in value or "of the" in value]
