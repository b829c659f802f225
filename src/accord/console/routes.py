"""All routes of the console API except the registry's.

`python -m accord.console.routes` prints their OpenAPI document, which the front end's types are made from (`make web`).
"""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from accord.console.administration import RecordsApi
from accord.console.agents import AgentsApi
from accord.console.chat_answers import ChatAnswers
from accord.console.chats import ChatApi
from accord.console.deliveries import DeliveriesApi
from accord.console.event_stream import EventsApi
from accord.console.inbox import InboxApi
from accord.console.inspector import InspectorApi
from accord.console.openapi import OpenApiEndpoint
from accord.console.routing import ApiRoute, Refusals
from accord.console.run_signals import REFUSALS as RUN_REFUSALS
from accord.console.run_signals import RunSignalsApi
from accord.console.runs import REFUSALS as FLOW_REFUSALS
from accord.console.runs import WorkflowsApi
from accord.console.server_context import ServerContext
from accord.console.sign_in import IssuersApi, SessionApi, SignInSessions
from accord.console.tasks import TasksApi
from accord.workflows.agent import WorkflowAgent

REFUSALS: Refusals = {**RUN_REFUSALS, **FLOW_REFUSALS}


class RouteProvider(Protocol):
    """One of them."""

    def routes(self) -> Sequence[ApiRoute]:
        """Return what is answered where."""


def routes_of(  # what it is about
    house: ServerContext,
    door: SignInSessions,
    answers: ChatAnswers,
    flows: Mapping[str, WorkflowAgent],
    runs: RunSignalsApi,
    features: Mapping[str, bool],
) -> list[ApiRoute]:
    """Return what is answered about a server with these workflows, and where one signs in to it."""
    parts: list[RouteProvider] = [
        SessionApi(door, version=house.version, url=house.url, features=features),
        IssuersApi(door, house.url),
        TasksApi(house),
        InboxApi(house),
        EventsApi(house),
        ChatApi(house, answers),
        WorkflowsApi(house, flows, runs),
        AgentsApi(house),
        InspectorApi(house),
        DeliveriesApi(house),
        RecordsApi(house),
    ]
    routes = [route for part in parts for route in part.routes()]
    return [*routes, *OpenApiEndpoint(routes, house.version).routes()]


VERSION = "0"
"""The document in the tree is of no release: it would change with each."""


class Placeholder:
    """Stands for everything that a server has, and is never asked for anything but to be kept."""

    def __getattr__(self, name: str) -> "Placeholder":
        return self


def placeholder_routes() -> list[ApiRoute]:
    """Return the routes of any server."""
    nothing: Any = Placeholder()
    return routes_of(nothing, nothing, nothing, {}, RunSignalsApi(nothing, nothing, {}), {})


def openapi_json() -> str:
    """Return the document, as the front end keeps it."""
    found: Sequence[ApiRoute] = placeholder_routes()[:-1]  # the last one describes the others
    described = json.loads(OpenApiEndpoint(found, VERSION).document)
    return json.dumps(described, indent=2, ensure_ascii=False, sort_keys=True) + "\n"


if __name__ == "__main__":
    sys.stdout.write(openapi_json())
