"""Many agents on one host: each at its own address with its own card, the first at the root, all in the catalog."""

import pytest

from accord import agent
from accord.server.application import to_a2a
from accord.testing import call, lifespan
from tests.server.conftest import CARD, V1, card_at, echo, get, planner, rpc, said, send, serving, text_of, urls


@pytest.mark.proves("CARD-DISC-001", "CARD-PROTO-001", "BIND-FIELD-001")
async def test_each_agent_has_its_own_card_whose_addresses_answer() -> None:
    async with serving(echo, planner) as app:
        for path, name in [("", "Echo"), ("/agents/echo", "Echo"), ("/agents/trip-planner", "Trip Planner")]:
            card = await card_at(app, path)
            assert card["name"] == name
            base = f"http://accord.example{path}"
            assert urls(card) == [f"{base}/", base]
            assert {(one["protocolBinding"], one["protocolVersion"]) for one in card["supportedInterfaces"]} == {
                (binding, version) for binding in ("JSONRPC", "HTTP+JSON") for version in ("1.0", "0.3")
            }
            rest = await call(app, {"message": said("x", f"r{path}")}, path=f"{path}/message:send", headers=V1)
            over_rpc = await send(app, "x", f"{path}/")
            assert (
                text_of(rest.json()["task"]) == text_of(over_rpc) == {"Echo": "x ", "Trip Planner": "a trip to x"}[name]
            )


async def test_the_old_card_path_and_the_bare_address_serve_as_well() -> None:
    async with serving(echo, planner) as app:
        assert (await get(app, "/agents/trip-planner/.well-known/agent.json")).json()["name"] == "Trip Planner"
        assert text_of(await send(app, "rome", "/agents/trip-planner")) == "a trip to rome"


async def test_tasks_belong_to_one_agent() -> None:
    async with serving(echo, planner) as app:
        task = await send(app, "x", "/agents/trip-planner/")
        for path, status in [("/agents/trip-planner", 200), ("", 404), ("/agents/echo", 404)]:
            assert (await get(app, f"{path}/tasks/{task['id']}")).status == status


@pytest.mark.parametrize(
    "path", ["/agents/nobody", "/agents/nobody/", f"/agents/nobody{CARD}", "/agents/", "/agents/Echo/"]
)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
async def test_an_agent_that_is_not_there_is_404(path: str, method: str) -> None:
    async with serving(echo, planner) as app:
        answer = await call(app, method=method, path=path)
    assert answer.status == 404
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert bool(answer.body) == (method != "HEAD")


@pytest.mark.proves("4-50")
async def test_each_agent_has_its_own_openapi_and_schemas() -> None:
    async with serving(echo, planner) as app:
        for path, title in [("", "Echo"), ("/agents/trip-planner", "Trip Planner")]:
            document = (await get(app, f"{path}/openapi.json")).json()
            assert document["info"]["title"] == title
            assert document["servers"] == [{"url": path or "/"}]
            listed = (await get(app, f"{path}/schemas")).json()["schemas"]
            first = listed[0]["url"]
            assert first.startswith(f"http://accord.example{path}/schemas/")
            schema = await get(app, first.removeprefix("http://accord.example"))
            assert schema.json()["$id"] == first


async def test_the_catalog_lists_all_agents_where_their_cards_are() -> None:
    async with serving(echo, planner) as app:
        answer = await get(app, "/.well-known/ai-catalog.json")
        entries = {entry["displayName"]: entry["url"] for entry in answer.json()["entries"]}
        assert entries == {
            "Echo": f"http://accord.example/agents/echo{CARD}",
            "Trip Planner": f"http://accord.example/agents/trip-planner{CARD}",
        }
        for name, url in entries.items():
            assert (await get(app, url.removeprefix("http://accord.example"))).json()["name"] == name


async def test_one_agent_is_listed_as_well() -> None:
    async with serving(planner) as app:
        assert (await card_at(app))["name"] == (await card_at(app, "/agents/trip-planner"))["name"] == "Trip Planner"
        assert len((await get(app, "/.well-known/ai-catalog.json")).json()["entries"]) == 1


def test_two_agents_cannot_be_at_one_address() -> None:
    @agent(name="trip planner")
    def other() -> str:
        return ""

    with pytest.raises(ValueError, match=r"both be at /agents/trip-planner: 'Trip Planner' and 'trip planner'"):
        to_a2a(planner, other)


async def test_names_in_other_scripts_have_addresses_of_their_own() -> None:
    @agent(name="翻訳")
    def translates() -> str:
        return "translated"

    @agent(name="要約")
    def sums_up() -> str:
        return "summed up"

    async with serving(translates, sums_up) as app:
        for path, answer in [("/agents/xn--pw0a62s", "translated"), ("/agents/xn--09zs9w", "summed up")]:
            assert text_of(await send(app, "x", f"{path}/")) == answer
            assert urls(await card_at(app, path))[1] == f"http://accord.example{path}"
        catalog = (await get(app, "/.well-known/ai-catalog.json")).json()
        assert [entry["displayName"] for entry in catalog["entries"]] == ["翻訳", "要約"]
        ids = {(await get(app, path + CARD)).json()["humanReadableId"] for path in ("", "/agents/xn--09zs9w")}
        assert ids == {"accord-example/xn--pw0a62s", "accord-example/xn--09zs9w"}


@pytest.mark.proves("B-00")
async def test_dialects_have_their_mounts_below_every_agent() -> None:
    async with serving(echo, planner) as app:
        for path in ("", "/agents/trip-planner"):
            for mount, dialect in [("/a2a/", "vault"), ("/jsonrpc", "v03"), ("/gen/", "gen")]:
                answer = await call(app, rpc("tasks/get", id="none", task_id="none"), path=path + mount)
                assert answer.headers["x-a2a-dialect"] == dialect


async def test_any_callable_is_an_agent() -> None:
    def greet(text: str) -> str:
        """Greet."""
        return f"hello {text}"

    app = to_a2a(greet)
    async with lifespan(app):
        assert text_of(await send(app, "you")) == "hello you"
        assert (await card_at(app))["description"] == "Greet."
