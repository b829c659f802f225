"""The agents of a server as pages ask for them: who sees which, how they are, and what is to be said of their cards."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from accord import Context, agent
from accord.agents.remote.agent import RemoteAgent
from accord.client.discovery import DiscoveredCard
from accord.client.interfaces import CardFinding as Strange
from accord.console.agents import ServedAs, card_findings
from accord.model import AgentSkill
from accord.outbound import Unreachable
from accord.protocol.cards import decode_card
from accord.registry.cards import TrustedKeys
from accord.remote.tasks import RemoteContact
from accord.server.application import Application, to_a2a
from accord.service.service import Offers
from accord.testing import Response, call, lifespan
from accord.workflows.agent import WorkflowAgent
from accord.workflows.source import read_document
from tests.cases import each
from tests.databases import emptied, postgres
from tests.registry.conftest import SCHEMES, SECRETS
from tests.server.conftest import echo, planner
from tests.workflows.proving import flow

__all__ = ["postgres"]

HOST = "localhost:8000"
FORM = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FORECAST = AgentSkill(id="forecast", name="Forecast", description="Tells the weather", tags=("w",), input_schema=FORM)


@agent(name="Weather", description="Forecasts", skills=[FORECAST])
async def weather(ctx: Context) -> str:
    await ctx.ask("Where?")
    return "Sun"


async def ask(app: Application, method: str, path: str, body: Any = None, *, by: str = "", **headers: str) -> Response:
    known = {"X-Secret": SECRETS[by]} if by else {}
    sent = {"Host": HOST, "Content-Type": "application/json"} | known | headers
    data = b"" if body is None else json.dumps(body).encode()
    return await call(app, data, method=method, path=path, headers=sent)


async def told(app: Application, path: str = "", *, by: str = "") -> Any:
    answer = await ask(app, "GET", f"/api/agents{path}", by=by)
    assert answer.status == 200, answer.body
    return answer.json()


async def say(app: Application, slug: str, text: str, *, by: str = "") -> None:
    message = {"messageId": text, "role": "ROLE_USER", "parts": [{"text": text}]}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    answer = await ask(app, "POST", f"/agents/{slug}/", body, by=by, **{"A2A-Version": "1.0"})
    assert "result" in answer.json(), answer.body


@asynccontextmanager
async def serving(*agents: Any, **settings: Any) -> AsyncIterator[Application]:
    app = to_a2a(*agents, **settings)
    async with lifespan(app):
        yield app


@pytest.fixture(params=["sqlite", "postgres"])
async def app(request: pytest.FixtureRequest) -> AsyncIterator[Application]:
    """Two agents, over each kind of store, for people of two tenants."""
    url = "sqlite://:memory:"
    if request.param == "postgres":
        url = await emptied(request.getfixturevalue("postgres"))
    async with serving(echo, weather, store=url, auth={"schemes": SCHEMES}) as served:
        yield served


async def test_agents_are_listed_with_skills_and_load(app: Application) -> None:
    for text in ("one", "two"):
        await say(app, "echo", text, by="alice")
    await say(app, "weather", "in Bern", by="alice")
    first, second = (await told(app, by="alice"))["items"]
    assert (first["slug"], first["name"], first["kind"], first["isDefault"]) == ("echo", "Echo", "function", True)
    assert first["bindings"] == ["JSONRPC", "HTTP+JSON"]
    assert first["dialects"] == ["v1", "v03", "vault", "gen", "relay"]
    assert first["health"] == {"state": "up", "detail": None, "checkedAt": None}
    assert (first["rate"], first["open"], second["rate"], second["open"]) == (0.4, 0, 0.2, 1)
    assert second["skills"] == [
        {
            "id": "forecast",
            "name": "Forecast",
            "description": "Tells the weather",
            "tags": ["w"],
            "examples": [],
            "schema": FORM,
        }
    ]


async def test_load_counts_only_visible_tasks(app: Application) -> None:
    await say(app, "weather", "in Bern", by="alice")
    assert [(await told(app, by=name))["items"][1]["open"] for name in ("alice", "bob", "dora", "carol")] == [
        1,
        0,
        1,
        0,
    ]


async def test_agents_are_shown_only_to_allowed_callers() -> None:
    roles = [{"name": "reader", "agents": ["echo"]}]
    async with serving(echo, weather, auth={"schemes": SCHEMES, "roles": roles}) as app:
        assert [one["slug"] for one in (await told(app, by="rita"))["items"]] == ["echo"]
        for path in ("weather", "nobody"):
            refused = await ask(app, "GET", f"/api/agents/{path}", by="rita")
            assert (refused.status, refused.json()) == (404, {"detail": "There is no such agent"})
        assert (await ask(app, "GET", "/api/agents")).status == 401


async def test_workflows_are_shown_with_an_input_form(tmp_path: Path) -> None:
    text = flow(
        '{name: a, type: deterministic, command: "echo {{inputs.city}}"}',
        head="inputs: {city: {type: string, required: true}}",
    )
    workflow = WorkflowAgent(read_document(text), directory=tmp_path, env={})
    async with serving(workflow) as app:
        (row,) = (await told(app))["items"]
    assert row["kind"] == "workflow"
    assert row["skills"][0]["schema"]["required"] == ["city"]


async def test_cards_are_shown_in_every_dialect() -> None:
    async with serving(planner) as app:
        found = await told(app, "/trip-planner")
        served = await ask(app, "GET", "/agents/trip-planner/.well-known/agent-card.json")
    assert list(found["cards"]) == ["public", "v1", "v03", "vault", "gen", "relay"]
    assert found["cards"]["public"] == served.json()
    assert found["url"] == f"http://{HOST}/agents/trip-planner/"
    assert found["cards"]["v1"]["supportedInterfaces"][0]["url"] == found["url"]
    assert "supportedInterfaces" not in found["cards"]["v03"]
    texts = [finding["text"] for finding in found["findings"]]
    assert "The server has no authentication: any client may use the agent" in texts
    assert [finding["severity"] for finding in found["findings"]].count("error") == 0


async def test_cards_that_name_another_host_are_findings() -> None:
    async with serving(echo, server={"url": "https://agents.example"}) as app:
        found = await told(app, "/echo")
    (wrong,) = [finding for finding in found["findings"] if finding["severity"] != "info"]
    assert (wrong["severity"], wrong["where"]) == ("warning", "supportedInterfaces")
    assert "leads to agents.example" in wrong["text"]
    assert found["url"] == "https://agents.example/agents/echo/"


class Elsewhere:
    """An agent elsewhere that is there, or is not."""

    def __init__(self) -> None:
        self.problem: str | None = "No connection"
        self.card = decode_card(json.dumps(CARD | {"description": "Far away"}).encode())
        self.discovered = DiscoveredCard(card=self.card, url=PLACE, document=b"", findings=(STRANGE,))

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Any]:
        if self.problem is not None:
            raise Unreachable(self.problem, was_sent=False)
        yield self


STRANGE = Strange(where="skills", what="It has odd ones")


async def test_remote_agents_are_up_if_they_answer() -> None:
    there = Elsewhere()
    far = RemoteAgent("https://far.example", name="far", connect=there.connect)
    async with serving(echo, far) as app:
        row = (await told(app))["items"][1]
        assert (row["kind"], row["remote"]) == ("remote", "https://far.example")
        assert (row["health"]["state"], row["health"]["detail"]) == ("down", "No connection")
        assert any("cannot be reached" in one["text"] for one in (await told(app, "/far"))["findings"])

        there.problem = None
        looked = await ask(app, "POST", "/api/agents/far/check")
        assert (looked.json()["state"], looked.json()["detail"]) == ("up", None)
        seen = await told(app, "/far")
        assert (seen["health"], seen["description"]) == (looked.json(), "Far away")
        assert "Its own card: skills: It has odd ones" in [one["text"] for one in seen["findings"]]

        there.problem = "No answer in time"
        looked = await ask(app, "POST", "/api/agents/far/check")
        assert (looked.json()["state"], looked.json()["detail"]) == ("down", "No answer in time")


async def test_only_remote_agents_are_checked() -> None:
    async with serving(echo) as app:
        assert (await ask(app, "POST", "/api/agents/echo/check")).status == 422


# --- what is to be said about a card ----------------------------------------------------------------------------------

CARD: dict[str, Any] = {
    "name": "Echo",
    "description": "Says it again",
    "version": "1",
    "supportedInterfaces": [{"url": "https://a.example/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
    "capabilities": {"streaming": True, "pushNotifications": True},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [{"id": "s", "name": "Say", "description": "Says", "tags": ["t"], "examples": ["Say it"]}],
    "provider": {"organization": "Acme", "url": "https://a.example"},
}
PLACE = "https://a.example/.well-known/agent-card.json"


def found(card: dict[str, Any] | bytes, **doing: Any) -> set[tuple[str, str]]:
    """What is found about a card besides that it is not signed: severity and place."""
    document = card if isinstance(card, bytes) else json.dumps(card).encode()
    usual: dict[str, Any] = {
        "offers": Offers(),
        "is_open": False,
        "schemes": frozenset({"key"}),
        "trust": TrustedKeys(),
    }
    known = ServedAs(**usual | doing)
    every = card_findings(document, PLACE, known)
    told: set[tuple[str, str]] = {(one.severity, one.where) for one in every}
    return told - {("info", "signatures"), ("warning", "securitySchemes.key")}


def test_good_cards_have_no_findings() -> None:
    assert found(CARD) == set()


@each(
    ("change", "doing", "expected"),
    [
        ({}, {"offers": Offers(streaming=False)}, ("error", "capabilities.streaming")),
        ({}, {"offers": Offers(push=False)}, ("error", "capabilities.pushNotifications")),
        ({"capabilities": {"streaming": True}}, {}, ("warning", "capabilities.pushNotifications")),
        ({}, {"offers": Offers(extended_card=True)}, ("warning", "capabilities.extendedAgentCard")),
        ({"securitySchemes": {"other": {"mtlsSecurityScheme": {}}}}, {}, ("error", "securitySchemes.other")),
        ({"description": " "}, {}, ("warning", "description")),
        ({"skills": []}, {}, ("warning", "skills")),
        ({"skills": [CARD["skills"][0] | {"tags": []}]}, {}, ("info", "skills[0].tags")),
        ({"skills": [CARD["skills"][0] | {"examples": []}]}, {}, ("info", "skills[0].examples")),
        ({"provider": None}, {}, ("info", "provider")),
        ({}, {"is_open": True, "schemes": frozenset()}, ("info", "securityRequirements")),
        ({}, {"contact": RemoteContact(is_up=False, at=1, detail="gone")}, ("error", "")),
        ({}, {"contact": RemoteContact(is_up=True, at=1, findings=("skills: none",))}, ("warning", "")),
    ],
)
def test_missing_and_false_claims_are_findings(
    change: dict[str, Any], doing: dict[str, Any], expected: tuple[str, str]
) -> None:
    assert expected in found(CARD | change, **doing)


def test_unusable_addresses_are_sorted_by_severity() -> None:
    places = [CARD["supportedInterfaces"][0] | {"url": url} for url in ("https://b.example/", "http://a.example/")]
    card = CARD | {"supportedInterfaces": places, "provider": None}
    every = card_findings(json.dumps(card).encode(), PLACE, ServedAs(offers=Offers(), trust=TrustedKeys()))
    assert [one.severity for one in every] == sorted(
        (one.severity for one in every), key=["error", "warning", "info"].index
    )
    assert {one.where for one in every if one.severity == "error"} == {
        "supportedInterfaces[0].url",
        "supportedInterfaces[1].url",
        "supportedInterfaces",
    }


def test_invalid_cards_are_explained() -> None:
    assert found(b'{"supportedInterfaces": 1}') == {("error", "supportedInterfaces")}
