"""All routes of the console API except the registry's.

`python -m accord.console.routes` prints their OpenAPI document, which the front end's types are made from (`make web`).
"""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from accord.console.administration import DeliveriesApi, RecordsApi
from accord.console.agents import AgentsApi
from accord.console.chat_answers import ChatAnswers
from accord.console.chats import ChatApi
from accord.console.feed import EventsApi
from accord.console.inbox import InboxApi
from accord.console.inspector import InspectorApi
from accord.console.openapi import OpenApiEndpoint
from accord.console.routing import ApiRoute, ApiSection, Refusals
from accord.console.run_signals import REFUSALS as RUN_REFUSALS
from accord.console.run_signals import RunSignalsApi
from accord.console.runs import REFUSALS as FLOW_REFUSALS
from accord.console.runs import WorkflowsApi
from accord.console.server_context import ServerContext
from accord.console.sign_in import IssuersApi, SessionApi, SignInSessions
from accord.console.tasks import TasksApi
from accord.workflows.agent import WorkflowAgent

REFUSALS: Refusals = {**RUN_REFUSALS, **FLOW_REFUSALS}


def routes_of(  # one argument per service
    server: ServerContext,
    sign_in: SignInSessions,
    answers: ChatAnswers,
    flows: Mapping[str, WorkflowAgent],
    runs: RunSignalsApi,
    features: Mapping[str, bool],
) -> list[ApiRoute]:
    """Return the console routes of a server with these workflows and sign-in sessions."""
    sections: list[ApiSection] = [
        SessionApi(sign_in, version=server.version, url=server.url, features=features),
        IssuersApi(sign_in, server.url),
        TasksApi(server),
        InboxApi(server),
        EventsApi(server.feed),
        ChatApi(server, answers),
        WorkflowsApi(server, flows, runs),
        AgentsApi(server),
        InspectorApi(server),
        DeliveriesApi(server),
        RecordsApi(server),
    ]
    routes = [route for section in sections for route in section.routes()]
    return [*routes, *OpenApiEndpoint(routes, server.version).routes()]


VERSION = "0"
"""Version in the checked-in document, independent of releases, so that it does not change with each."""


class Placeholder:
    """Stands in for all services of a server. It is only stored, never called."""

    def __getattr__(self, name: str) -> "Placeholder":
        return self


def placeholder_routes() -> list[ApiRoute]:
    """Return the routes of any server."""
    nothing: Any = Placeholder()
    return routes_of(nothing, nothing, nothing, {}, RunSignalsApi(nothing, nothing, {}), {})


def openapi_json() -> str:
    """Return the OpenAPI document in the form that the front end stores."""
    found: Sequence[ApiRoute] = placeholder_routes()[:-1]  # the last one describes the others
    described = json.loads(OpenApiEndpoint(found, VERSION).document)
    return json.dumps(described, indent=2, ensure_ascii=False, sort_keys=True) + "\n"


if __name__ == "__main__":
    sys.stdout.write(openapi_json())
