"""Cards to publish, stores to keep them in, and servers that are asked in this process."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from accord.server.application import Application, to_a2a
from accord.testing import Response, call, lifespan
from tests.databases import emptied, postgres
from tests.server.conftest import echo
from tests.storage.conftest import heard, ready, store

__all__ = ["heard", "postgres", "ready", "store"]

# They are on this machine, where servers do not look for them unless they are told to: a test leaves it alone.
VAULT: dict[str, Any] = {
    "schemaVersion": "1.0",
    "humanReadableId": "Acme/Weather",
    "agentVersion": "1.2.3",
    "name": "Weather",
    "description": "Forecasts for anywhere",
    "url": "http://localhost:9/a2a/",
    "provider": {"name": "Acme"},
    "capabilities": {"a2aVersion": "1.0", "teeDetails": {"type": "Intel SGX", "publicKey": "k"}},
    "authSchemes": [{"scheme": "none"}],
    "tags": ["Weather", "public"],
}
FAR = VAULT | {"url": "https://weather.example/a2a/"}
V1: dict[str, Any] = {
    "name": "Trip Planner",
    "description": "Plans trips",
    "version": "1.0",
    "supportedInterfaces": [
        {"url": "http://localhost:9/trips/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
        {"url": "localhost:9", "protocolBinding": "GRPC", "protocolVersion": "1.0"},
    ],
    "capabilities": {"streaming": True},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [{"id": "plan", "name": "Plan", "description": "Finds the way", "tags": ["travel"]}],
    "provider": {"organization": "Trips & Co", "url": "https://trips.example"},
}
V03: dict[str, Any] = {
    "protocolVersion": "0.3.0",
    "name": "Adder",
    "description": "Adds",
    "url": "http://localhost:9/rpc",
    "version": "1",
    "capabilities": {},
    "defaultInputModes": ["text"],
    "defaultOutputModes": ["text"],
    "skills": [],
}
GEN: dict[str, Any] = {
    "name": "Generic",
    "description": "Of the generic dialect",
    "version": "1",
    "url": "http://localhost:9/",
    "capabilities": [],
    "skills": [],
}


def document(card: dict[str, Any], **more: Any) -> bytes:
    return json.dumps(card | more).encode()


SECRETS = {
    "alice": "the secret of alice, of acme",
    "bob": "the secret of bob, of acme",
    "carol": "the secret of carol, of globex",
    "dora": "the secret of dora, an admin of acme",
    "otto": "the secret of otto, an admin of all",
    "rita": "the secret of rita, a reader of acme",
    "root": "the secret of root, of any tenant",
}
GRANTS: dict[str, dict[str, Any]] = {
    "alice": {"tenant": "acme"},
    "bob": {"tenant": "acme"},
    "carol": {"tenant": "globex"},
    "dora": {"tenant": "acme", "roles": ["admin"]},
    "otto": {"roles": ["admin"]},
    "rita": {"tenant": "acme", "roles": ["reader"]},
    "root": {"tenant": "*"},
}
SCHEMES: list[dict[str, Any]] = [
    {
        "type": "header",
        "name": "X-Secret",
        "secrets": [{"owner": name, "secret": secret, **GRANTS[name]} for name, secret in SECRETS.items()],
    },
    {"type": "api-keys"},
]

PUBLISHER: dict[str, Any] = {"name": "publisher", "agents": ["a/*", "acme/*", "x/*"]}
"""A role that names the namespaces under which the tests publish for every tenant."""
AUTH: dict[str, Any] = {
    "roles": [PUBLISHER],
    "schemes": [
        SCHEMES[0] | {"secrets": [{"roles": ["user", "publisher"], **one} for one in SCHEMES[0]["secrets"]]},
        *SCHEMES[1:],
    ],
}


class Asking:
    """A server, asked in this process."""

    def __init__(self, app: Application) -> None:
        self.app = app

    async def __call__(
        self, method: str, path: str, body: Any = None, *, by: str = "", query: str = "", **headers: str
    ) -> Response:
        """Ask as somebody, or with other headers."""
        known = {"X-Secret": SECRETS[by]} if by else {}
        sent = {"Host": "localhost:8000", "Content-Type": "application/json"} | known | headers
        data = b"" if body is None else json.dumps(body).encode()
        where = path if path.startswith("/.") else f"/api/v1{path}"
        return await call(self.app, data, method=method, path=where, query=query, headers=sent)

    async def publish(self, card: dict[str, Any], by: str = "", **more: Any) -> dict[str, Any]:
        """Publish a card, and return what was made of it."""
        answer = await self("POST", "/agent-cards/", {"card_data": card, **more}, by=by)
        assert answer.status == 201, answer.body
        made: dict[str, Any] = answer.json()
        return made

    async def names(self, by: str = "", query: str = "") -> list[str]:
        """The names that somebody finds, sorted."""
        answer = await self("GET", "/agent-cards/", by=by, query=query)
        assert answer.status == 200, answer.body
        return sorted(item["human_readable_id"] for item in answer.json()["items"])


@asynccontextmanager
async def serving(**settings: Any) -> AsyncIterator[Asking]:
    """Serve an agent, and its registry."""
    app = to_a2a(echo, **settings)
    async with lifespan(app):
        yield Asking(app)


@pytest.fixture
async def open_server() -> AsyncIterator[Asking]:
    """A server that asks nobody who they are."""
    async with serving() as asking:
        yield asking


@pytest.fixture(params=["sqlite", "postgres"])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[Asking]:
    """A server with people of two tenants, over each kind of store."""
    url = "sqlite://:memory:"
    if request.param == "postgres":
        url = await emptied(request.getfixturevalue("postgres"))
    async with serving(store=url, auth=AUTH) as asking:
        yield asking
