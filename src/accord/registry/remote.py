"""A remote registry over HTTP: Accord's own, or another with AgentVault's API."""

from typing import Any
from urllib.parse import quote, urlencode

from msgspec import MsgspecError
from msgspec.json import Decoder

from accord.model import AgentCard
from accord.protocol import codec, urls
from accord.registry import cards, names
from accord.registry.availability import AskPort, ServerAnswer, UnreachableServer
from accord.registry.cards import InvalidCard, SignedBy, TrustedKeys
from accord.registry.names import NotAsked, UnknownName

API = "/api/v1"

_object = Decoder(dict[str, Any])


class RegistryRefused(Exception):
    """The registry refused a request. `status` is the HTTP status, the message is the registry's.

    `name` is the name of the conflicting agent, if any.
    """

    def __init__(self, status: int, message: str, name: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.name = name

    @property
    def may_pass(self) -> bool:
        """Whether a retry may succeed."""
        return self.status in (408, 429) or self.status >= 500


class RemoteRegistry:
    """A registry at a URL."""

    def __init__(self, url: str, ask: AskPort, *, trust: TrustedKeys | None = None, signed_only: bool = False) -> None:
        """Call the registry at `url`. With `signed_only`, cards must be signed by a key of `trust`."""
        self.url = url.rstrip("/").removesuffix(API)
        self._ask = ask
        self._trust = trust or TrustedKeys()
        self._signed_only = signed_only

    async def resolve(self, name: str) -> AgentCard:
        """Return the card of the agent with a name, or raise UnknownName."""
        try:
            entry = await self.named(name)
        except (RegistryRefused, UnreachableServer) as error:
            kind = NotAsked if isinstance(error, UnreachableServer) or error.may_pass else UnknownName
            raise kind(f"{name}: {self.url}: {error}") from None
        verdict, counted = self._trust.sift(codec.encode(entry.get("card_data")))
        try:
            card = cards.read(counted, name).card
        except InvalidCard as error:
            raise UnknownName(f"{name}: the card that {self.url} has cannot be used: {error}") from None
        places = [urls.host_of(one.url) for one in card.supported_interfaces]
        if not urls.is_loopback(urls.host_of(self.url)) and any(map(urls.is_this_machine, places)):
            raise UnknownName(f"{name}: the card that {self.url} has leads to this machine itself")
        if self._signed_only and verdict.state is not SignedBy.TRUSTED:
            raise UnknownName(f"{name}: {verdict.detail}")
        return names.under(card, name)

    async def named(self, name: str) -> dict[str, Any]:
        """Return the registry's entry of an active agent."""
        entry = await self._json("GET", f"/agent-cards/id/{quote(names.handle(name), safe='/')}")
        if entry.get("is_active") is False:
            raise RegistryRefused(404, "The agent was removed")
        return entry

    async def search(self, query: list[tuple[str, str]]) -> dict[str, Any]:
        """Return a page of agents, by the parameters of the API."""
        return await self._json("GET", f"/agent-cards/?{urlencode(query)}")

    async def publish(self, body: dict[str, Any]) -> dict[str, Any]:
        """Publish an agent, or change the caller's agent with its name."""
        try:
            return await self._json("POST", "/agent-cards/", body)
        except RegistryRefused as error:
            if error.status != 409 or error.name is None:
                raise
            entry = await self.named(error.name)
        return await self._json("PUT", f"/agent-cards/{quote(entry['id'], safe='')}", body)

    async def check(self, name: str) -> dict[str, Any]:
        """Have the registry check an agent immediately."""
        entry = await self.named(name)
        return await self._json("POST", f"/agent-cards/{quote(entry['id'], safe='')}/check")

    async def _json(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        answer = await self._ask(method, f"{self.url}{API}{path}", None if body is None else codec.encode(body))
        try:
            document = _object.decode(answer.body)
        except (MsgspecError, UnicodeDecodeError, RecursionError):
            raise RegistryRefused(answer.status, f"It answers {answer.status}, and not as a registry does") from None
        if answer.status >= 300:
            raise _refusal(answer, document)
        return document


def _refusal(answer: ServerAnswer, found: dict[str, Any]) -> RegistryRefused:
    detail, name = found.get("detail"), found.get("human_readable_id")
    message = detail[:1000] if isinstance(detail, str) else f"It answers {answer.status}"
    return RegistryRefused(answer.status, message, name if isinstance(name, str) else None)
