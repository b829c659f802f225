"""The way to an A2A agent that a document names: by its card, or without one straight to the address.

A document says where an agent is, so a missing card is no reason not to talk to it; it is then assumed to speak
JSON-RPC there. Secrets are looked up when they are used and are in no plan. `members` stands above, `client` below.
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from accord.client.auth.choice import allowing, strays
from accord.client.discovery import BadCard, CardNotFound, NoSuchAgent
from accord.client.keys import Credential, KeyManagementError, Keys
from accord.client.selection import JSONRPC
from accord.errors import AuthenticationFailed, PermissionDenied
from accord.model import AgentCapabilities, AgentCard, AgentInterface
from accord.workflows.document import A2A_SECONDS, AgentDef

if TYPE_CHECKING:
    from accord.client.client import Client

VERSIONS = ("0.3", "1.0")
"""What an agent without a card is tried with: one of the old version does not understand the new one's names, and the
other way round, so that nothing happens twice."""

API_KEY = "X-API-Key"
"""Where an API key goes that no card says the place of."""

NO_CARD = (CardNotFound, BadCard, AuthenticationFailed, PermissionDenied)
"""What stands between us and a card, but not between us and the agent."""

_REFERENCE = re.compile(r"\$\{(credential:)?([^${}]+)\}")

log = logging.getLogger("accord.workflows")


def filled(text: str, env: Mapping[str, str], keys: Keys, to: str | None = None) -> str:
    """Return a text with `${NAME}` from the environment and `${credential:NAME}` from what keys have under that name.

    Raises KeyManagementError for one that is nowhere, or whose `hosts` leave out the address `to`.
    """

    def found(reference: re.Match[str]) -> str:
        name = reference[2]
        if reference[1] is None:
            value = env.get(name)
        else:
            credential = credential_for(name, keys, to)
            value = None if credential is None else credential.bearer or credential.api_key
        if value is None:
            what = "variable" if reference[1] is None else "credential with a token or an API key"
            raise KeyManagementError(f"There is no {what} called {name}")
        return value

    return _REFERENCE.sub(found, text)


def credential_for(name: str, keys: Keys, to: str | None) -> Credential | None:
    """Return the credential that a document names; KeyManagementError if its `hosts` leave out the address."""
    credential = keys.find(name)
    refused = () if credential is None or to is None else strays(credential, [to])
    if credential is not None and refused:
        raise KeyManagementError(f"`{name}` is not for {refused[0]}; {allowing(name, credential, refused)}")
    return credential


def connecting(agent: AgentDef, env: Mapping[str, str], keys: Keys) -> Callable[[], Any]:
    """Return what opens the way to an agent."""

    @asynccontextmanager
    async def connect() -> AsyncIterator["Client"]:
        from accord.client.client import Client

        url, options = await asyncio.to_thread(_asked, agent, env, keys)
        async with AsyncExitStack() as stack:
            try:
                client = await stack.enter_async_context(Client.connect(url, **options))
            except NoSuchAgent:
                raise
            except NO_CARD as error:
                log.info("agent has no card: %s", error, extra={"agent": agent.name})
                options["headers"] |= _key_of(agent, keys)
                client = await stack.enter_async_context(Client.connect(assumed(agent, url), **options))
            yield client

    return connect


async def carded(agent: AgentDef, env: Mapping[str, str], keys: Keys) -> AgentCard:
    """Return the card of an agent; raises whatever stands in the way."""
    from accord.client.client import Client

    url, options = await asyncio.to_thread(_asked, agent, env, keys)
    async with Client.connect(url, **options) as client:
        return client.card


def _asked(agent: AgentDef, env: Mapping[str, str], keys: Keys) -> tuple[str, dict[str, Any]]:
    """Return an agent's address and how it is asked, with secrets in their places; it may ask a keyring.

    Without a credential that the document names, headers are taken for what the agent wants to see.
    """
    url = filled(agent.url or "", env, keys)
    url = filled(agent.url or "", env, keys, to=url)  # a credential in the address is bound to the address as well
    if agent.credentials is not None and credential_for(agent.credentials, keys, url) is None:
        raise KeyManagementError(f"There is no credential called {agent.credentials}")
    return url, {
        "keys": None if agent.headers and agent.credentials is None else keys,
        "service": agent.credentials,
        "headers": {name: filled(value, env, keys, url) for name, value in agent.headers.items()},
        "timeout": agent.timeout or A2A_SECONDS,
    }


def _key_of(agent: AgentDef, keys: Keys) -> dict[str, str]:
    """Return the header for an API key, which an agent without a card cannot say where it wants."""
    credential = None if agent.credentials is None else keys.find(agent.credentials)
    if credential is None or credential.bearer or not credential.api_key:
        return {}
    return {API_KEY: credential.api_key}


def assumed(agent: AgentDef, url: str) -> AgentCard:
    """Return the card that is assumed for an agent without one; it streams unless the document says otherwise."""
    interfaces = tuple(
        AgentInterface(url=url, protocol_binding=JSONRPC, protocol_version=version) for version in VERSIONS
    )
    return AgentCard(
        name=agent.name,
        description=agent.role or "",
        version="",
        supported_interfaces=interfaces,
        capabilities=AgentCapabilities(streaming=agent.streaming is not False),
        default_input_modes=("text/plain",),
        default_output_modes=("text/plain",),
        skills=(),
    )
