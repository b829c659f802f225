"""Finding a card: where it is looked for, how it is kept, and what is said about one that cannot be used."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from joserfc.jwk import ECKey
from msgspec.structs import replace

from accord.client import BadCard, CardNotFound
from accord.client.auth import Bearer
from accord.client.discovery import CardCache, DiscoveredCard, Discovery, discover_given_card, read_pinned_keys
from accord.client.exchange import HttpExchange
from accord.errors import AgentUnavailable, AuthenticationFailed, PermissionDenied
from accord.model import CardProfile
from accord.outbound import HttpSession
from accord.protocol.card_signatures import read_signing_key, sign_card
from accord.protocol.cards import decode_card
from accord.protocol.operations import DialectName
from tests.client.pages import CARD, CATALOG, OLD_CARD, Page, Pages, catalog, published, written


@asynccontextmanager
async def discovering(cache: CardCache | None = None, auth: Any = None, **more: Any) -> AsyncIterator[Discovery]:
    transport = HttpSession()
    try:
        yield Discovery(HttpExchange(transport, auth), cache=cache or CardCache(), **more)
    finally:
        await transport.close()


async def find(target: str, **more: Any) -> DiscoveredCard:
    async with discovering(**more) as discovery:
        return await discovery.find(target)


# --- where --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", [DialectName.V1, DialectName.V03, DialectName.VAULT, DialectName.GEN])
@pytest.mark.proves("B-03", "1-08", "1-09", "4-52")
async def test_the_card_of_today_comes_first_and_that_of_yesterday_next(dialect: DialectName) -> None:
    async with published() as pages:
        pages.pages[CARD] = Page(written(f"{pages.url}/rpc", dialect=dialect))
        assert (await find(pages.url)).url == pages.url + CARD
        pages.pages = {OLD_CARD: Page(written(f"{pages.url}/rpc", dialect=dialect))}
        found = await find(f"{pages.url}/")
        assert (found.card.name, found.url) == ("Trips", pages.url + OLD_CARD)
        assert found.card.supported_interfaces[0].url == f"{pages.url}/rpc"
        assert pages.paths() == [CARD, CARD, OLD_CARD]


async def test_an_agent_below_a_path_has_its_card_there() -> None:
    async with published() as pages:
        pages.pages["/agents/trips" + CARD] = Page(written(f"{pages.url}/agents/trips/"))
        found = await find(f"{pages.url}/agents/trips/?x=1#y")
        assert found.url == f"{pages.url}/agents/trips{CARD}"


async def test_the_endpoint_leads_to_the_card_that_names_it_and_to_no_other() -> None:
    async with published() as pages:
        pages.pages[CARD] = Page(written(f"{pages.url}/a2a"))
        assert (await find(f"{pages.url}/a2a/")).url == pages.url + CARD
        with pytest.raises(CardNotFound, match="a card of another agent"):
            await find(f"{pages.url}/agents/typo")


async def test_the_address_of_a_card_is_an_address() -> None:
    async with published() as pages:
        pages.pages["/cards/trips.json"] = Page(written(f"{pages.url}/a2a"))
        assert (await find(f"{pages.url}/cards/trips.json")).card.name == "Trips"
        assert pages.paths() == ["/cards/trips.json"]


async def test_a_host_with_one_agent_in_its_catalog_is_that_agent() -> None:
    async with published() as pages:
        pages.pages[CATALOG] = Page(catalog(("Trips", "/a/card.json")))
        pages.pages["/a/card.json"] = Page(written(f"{pages.url}/a/"))
        assert (await find(pages.url)).url == f"{pages.url}/a/card.json"


async def test_hosts_with_several_agents_list_them() -> None:
    async with published() as pages:
        pages.pages[CATALOG] = Page(
            catalog(("Trips", f"{pages.url}/a/card.json"), ("Hotels", f"{pages.url}/b/card.json"))
        )
        pages.pages["/b/card.json"] = Page(written(f"{pages.url}/b/"))
        with pytest.raises(CardNotFound, match=r"a catalog of 2 agents.*Trips.*Hotels"):
            await find(pages.url)
        assert (await find(f"{pages.url}/b")).url == f"{pages.url}/b/card.json"


async def test_missing_cards_list_the_tried_paths() -> None:
    async with published() as pages:
        pages.pages[CARD] = Page(b"<html>an application</html>")
        pages.pages[CATALOG] = Page(b'{"entries": 3}')
        with pytest.raises(CardNotFound) as raised:
            await find(pages.url)
        assert raised.value.tried == {
            pages.url + CARD: "no JSON object",
            pages.url + OLD_CARD: "HTTP 404",
            pages.url + CATALOG: "no catalog",
        }


@pytest.mark.parametrize(("status", "kind"), [(401, AuthenticationFailed), (403, PermissionDenied)])
async def test_protected_cards_are_reported(status: int, kind: type[Exception]) -> None:
    async with published() as pages:
        pages.pages[CARD] = Page(status=status)
        with pytest.raises(kind):
            await find(pages.url)


async def test_failing_hosts_are_retried() -> None:
    async with published() as pages:
        pages.pages[CARD] = [Page(status=503), Page(status=500), Page(written(f"{pages.url}/"))]
        assert (await find(pages.url)).card.name == "Trips"
        pages.pages[CARD] = [Page(status=503)] * 3
        with pytest.raises(AgentUnavailable):
            await find(pages.url)


# --- credentials and redirects ------------------------------------------------------------------------------------


async def test_credentials_do_not_follow_a_redirect_to_another_host() -> None:
    async with published() as first, published() as second:
        first.pages[CARD] = Page(status=302, headers={"Location": f"{second.url}/moved.json"})
        second.pages["/moved.json"] = Page(written(f"{second.url}/rpc"))
        found = await find(first.url, auth=Bearer("secret"), headers=[("X-Mine", "1")])
        assert found.url == f"{second.url}/moved.json"
        assert first.asked[0][1]["authorization"] == "bearer secret"
        assert first.asked[0][1]["x-mine"] == "1"
        assert {"authorization", "x-mine"}.isdisjoint(second.asked[0][1])


async def test_redirects_end() -> None:
    async with published() as pages:
        pages.pages["/card.json"] = Page(status=302, headers={"Location": "/card.json"})
        with pytest.raises(CardNotFound):
            await find(f"{pages.url}/card.json")
        pages.pages["/card.json"] = Page(status=302, headers={"Location": "ftp://x.example/card.json"})
        with pytest.raises(CardNotFound, match="leaves https"):
            await find(f"{pages.url}/card.json")
        pages.pages["/card.json"] = Page(status=302, headers={"Location": "http://[x"})
        with pytest.raises(CardNotFound, match="an invalid address"):
            await find(f"{pages.url}/card.json")


async def test_invalid_addresses_are_reported() -> None:
    with pytest.raises(CardNotFound, match="an invalid address"):
        await find("http://[x")
    async with published() as pages:
        pages.pages[CATALOG] = Page(catalog(("Trips", "http://[x")))
        with pytest.raises(CardNotFound, match="no catalog"):
            await find(pages.url)


# --- kept ---------------------------------------------------------------------------------------------------------


async def asked_twice(headers: dict[str, str]) -> Pages:
    async with published() as pages, discovering() as discovery:
        pages.pages[CARD] = Page(written(f"{pages.url}/"), headers=headers)
        first = await discovery.find(pages.url)
        assert await discovery.find(pages.url) == first
        return pages


async def test_a_fresh_card_is_not_fetched_again() -> None:
    assert len((await asked_twice({"Cache-Control": "public, max-age=300"})).asked) == 1


async def test_stale_cards_are_revalidated_by_etag() -> None:
    for stale in ("max-age=0", "no-cache, max-age=60", "public"):
        pages = await asked_twice({"ETag": '"7"', "Cache-Control": stale})
        assert [headers.get("if-none-match") for _, headers in pages.asked] == [None, '"7"']


async def test_stale_cards_are_revalidated_by_date() -> None:
    date = "Sun, 15 Nov 2026 10:00:00 GMT"
    pages = await asked_twice({"Last-Modified": date})
    assert [headers.get("if-modified-since") for _, headers in pages.asked] == [None, date.lower()]


async def test_a_card_that_may_not_be_kept_is_not() -> None:
    for headers in ({"ETag": '"7"', "Cache-Control": "no-store"}, {}):
        pages = await asked_twice(headers)
        assert [headers.get("if-none-match") for _, headers in pages.asked] == [None, None]


async def test_changed_cards_replace_the_cached_card() -> None:
    async with published() as pages, discovering() as discovery:
        pages.pages[CARD] = Page(written(f"{pages.url}/"), headers={"ETag": '"1"'})
        await discovery.find(pages.url)
        pages.pages[CARD] = Page(written(f"{pages.url}/", name="Journeys"), headers={"ETag": '"2"'})
        assert (await discovery.find(pages.url)).card.name == "Journeys"
        await discovery.find(pages.url)
        assert pages.asked[-1][1]["if-none-match"] == '"2"'


def test_only_so_many_cards_are_kept() -> None:
    cache = CardCache()
    for number in range(300):
        cache.put(f"u{number}", b"", {"ETag": "x"}, 0)
        cache.get("u0")
    assert cache.get("u0") is not None
    assert cache.get("u1") is None


# --- what is wrong with it ----------------------------------------------------------------------------------------

BAD: list[tuple[bytes, str]] = [
    (b"{", "not valid JSON"),
    (b"{}", "name: Required field is missing"),
    (b'{"name": "x", "url": 7}', "url: "),
    (written("https://elsewhere.example/"), "127.0.0.1|localhost, which may not name elsewhere.example"),
    (written(), "There is no address that may be used"),
]


@pytest.mark.parametrize(("document", "finding"), BAD)
async def test_unusable_interfaces_are_named(document: bytes, finding: str) -> None:
    async with published() as pages:
        pages.pages[CARD] = Page(document)
        with pytest.raises(BadCard, match=finding) as raised:
            await find(pages.url)
        assert raised.value.findings


async def test_a_generic_card_without_an_address_is_at_its_own() -> None:
    document = msgspec.json.encode({"name": "x", "description": "", "version": "1", "capabilities": ["streaming"]})
    async with published() as pages:
        pages.pages["/gen" + CARD] = Page(document)
        found = await find(f"{pages.url}/gen")
        assert found.card.supported_interfaces[0].url == f"{pages.url}/gen/"


# --- signed -------------------------------------------------------------------------------------------------------

KEY, OTHER = (ECKey.generate_key("P-256", parameters={"kid": kid}) for kid in ("mine", "other"))


async def test_a_card_is_believed_if_a_pinned_key_has_signed_it() -> None:
    signing = read_signing_key(msgspec.json.encode(KEY.as_dict(private=True)))
    async with published() as pages:
        document = sign_card(written(f"{pages.url}/rpc", "https://elsewhere.example/rpc"), signing)
        pages.pages[CARD] = Page(document)
        found = await find(pages.url, keys=read_pinned_keys(signing.public()))
        assert found.signed_by == "mine"
        assert len(found.card.supported_interfaces) == 2, "whoever signed it speaks for all of its addresses"
        unpinned = await find(pages.url)
        assert (unpinned.signed_by, len(unpinned.card.supported_interfaces)) == (None, 1)
        with pytest.raises(BadCard, match="signatures: "):
            await find(pages.url, keys=read_pinned_keys(OTHER))
        pages.pages[CARD] = Page(document.replace(b"Plans trips", b"Sells trips"))
        with pytest.raises(BadCard, match="signatures: "):
            await find(pages.url, keys=read_pinned_keys(KEY))
        pages.pages[CARD] = Page(written(f"{pages.url}/rpc"))
        with pytest.raises(BadCard, match="not signed"):
            await find(pages.url, keys=read_pinned_keys([KEY.as_dict(private=False)]))


async def test_of_a_signed_card_only_that_is_read_which_is_signed() -> None:
    signing = read_signing_key(msgspec.json.encode(KEY.as_dict(private=True)))
    async with published() as pages:
        document = sign_card(written(f"{pages.url}/rpc"), signing)
        changed = msgspec.json.decode(document) | {"url": "https://evil.example/"}
        pages.pages[CARD] = Page(msgspec.json.encode(changed))
        found = await find(pages.url, keys=read_pinned_keys(KEY))
    assert found.signed_by == "mine"
    assert b"evil" not in found.document


def test_of_a_card_that_is_given_only_that_is_used_which_is_signed() -> None:
    signing = read_signing_key(msgspec.json.encode(KEY.as_dict(private=True)))
    card = decode_card(sign_card(written("https://agents.example/rpc"), signing))
    profile = CardProfile(human_readable_id="acme/trips", service_identifiers={"key": "somebody-elses"})
    found = discover_given_card(replace(card, profile=profile), read_pinned_keys(KEY))
    assert found.signed_by == "mine"
    assert found.card == replace(card, profile=CardProfile(human_readable_id="acme/trips"))
    assert discover_given_card(replace(card, profile=profile)).card.profile == profile


def test_keys_are_pinned_in_any_form() -> None:
    plain = KEY.as_dict(private=False)
    for stated in (KEY, plain, [plain], [KEY], {"keys": [plain]}, msgspec.json.encode(plain)):
        assert [key.kid for key in read_pinned_keys(stated)] == ["mine"]
    for wrong in ("no json", [1], {"kty": "x"}, 7):
        with pytest.raises(ValueError, match="JSON Web Keys"):
            read_pinned_keys(wrong)
