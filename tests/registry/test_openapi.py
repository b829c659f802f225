"""`/api/v1/openapi.json`: valid, and true of every request and answer."""

from typing import Any

import jsonschema_rs
import pytest

from tests.judges.openapi import mistakes
from tests.registry.conftest import V03, VAULT, Asking

pytestmark = pytest.mark.proves("2-34")


@pytest.fixture
async def described(server: Asking) -> dict[str, Any]:
    """The document, as a stranger gets it."""
    answer = await server("GET", "/openapi.json")
    assert answer.status == 200
    found: dict[str, Any] = answer.json()
    return found


def check(document: dict[str, Any], path: str, method: str, answer: Any) -> None:
    """Check an answer against what the document says."""
    responses = document["paths"][path][method.lower()]["responses"]
    told = responses.get(str(answer.status)) or responses["default"]
    if "content" not in told:
        assert answer.body == b""
        return
    schema = {"components": document["components"]} | told["content"]["application/json"]["schema"]
    validator = jsonschema_rs.Draft202012Validator(schema, offline=True)
    assert [error.message for error in validator.iter_errors(answer.json())] == []


async def test_the_document_is_valid_openapi(described: dict[str, Any]) -> None:
    assert mistakes(described) == []
    assert described["servers"] == [{"url": "/api/v1"}]
    names = [stated["operationId"] for item in described["paths"].values() for stated in item.values()]
    assert len(names) == len(set(names)) == 15
    assert {path for path in described["paths"] if "by-hri" in path} == {"/agent-cards/by-hri/"}
    assert all(stated["summary"] for item in described["paths"].values() for stated in item.values())


async def test_every_answer_is_as_described(server: Asking, described: dict[str, Any]) -> None:
    one, many = "/agent-cards/{id}", "/agent-cards/"
    made = await server("POST", "/agent-cards/", {"card_data": VAULT}, by="alice")
    id = made.json()["id"]
    asked = [
        (many, "POST", made),
        (many, "POST", await server("POST", "/agent-cards/", {"card_data": VAULT}, by="bob")),
        (many, "POST", await server("POST", "/agent-cards/", {"card_data": {}}, by="bob")),
        (many, "POST", await server("POST", "/agent-cards/", {"card_data": V03})),
        (many, "GET", await server("GET", "/agent-cards/", by="alice")),
        (many, "GET", await server("GET", "/agent-cards/", query="limit=0")),
        (f"{many}by-hri/", "GET", await server("GET", "/agent-cards/by-hri", query="hri=acme/weather", by="alice")),
        (f"{many}by-hri/", "GET", await server("GET", "/agent-cards/by-hri")),
        (f"{many}id/{{name}}", "GET", await server("GET", "/agent-cards/id/acme/weather", by="alice")),
        (one, "GET", await server("GET", f"/agent-cards/{id}", by="alice")),
        (one, "GET", await server("GET", f"/agent-cards/{id}")),
        (f"{one}/card", "GET", await server("GET", f"/agent-cards/{id}/card", by="alice")),
        (one, "PUT", await server("PUT", f"/agent-cards/{id}", {"visibility": "public"}, by="alice")),
        ("/utils/validate-card", "POST", await server("POST", "/utils/validate-card", {"card_data": V03})),
        ("/utils/validate-card", "POST", await server("POST", "/utils/validate-card", {"card_data": {}})),
        ("/developers/me", "GET", await server("GET", "/developers/me", by="alice")),
        ("/developers/me/apikeys", "POST", await server("POST", "/developers/me/apikeys", {}, by="alice")),
        ("/developers/me/apikeys", "GET", await server("GET", "/developers/me/apikeys", by="alice")),
        (one, "DELETE", await server("DELETE", f"/agent-cards/{id}", by="alice")),
    ]
    for path, method, answer in asked:
        check(described, path, method, answer)
    assert {answer.status for _, _, answer in asked} >= {200, 201, 204, 401, 404, 409, 422}


async def test_every_parameter_and_member_is_described(described: dict[str, Any]) -> None:
    listed = described["paths"]["/agent-cards/"]["get"]["parameters"]
    assert {parameter["name"] for parameter in listed} >= {"search", "tags", "limit", "skip", "owned_only"}
    published = described["components"]["schemas"]["PublishBody"]
    assert (published["required"], set(published["properties"])) == (
        ["card_data"],
        {"card_data", "visibility", "human_readable_id"},
    )
    (id,) = described["paths"]["/agent-cards/{id}"]["get"]["parameters"]
    assert (id["name"], id["in"], id["required"]) == ("id", "path", True)
