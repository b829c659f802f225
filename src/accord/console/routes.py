"""All routes of the console API except the registry's.

`python -m accord.console.routes` prints their OpenAPI document, which the front end's types are made from (`make web`).
"""

import json
import sys
from collections.abc import Mapping
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
from accord.console.run_endpoints import REFUSALS as RUN_REFUSALS
from accord.console.run_endpoints import RunSignalsApi
from accord.console.runs import REFUSALS as FLOW_REFUSALS
from accord.console.runs import WorkflowsApi
from accord.console.server_context import ServerContext
from accord.console.sign_in import SignInApi
from accord.console.tasks import TasksApi
from accord.workflows.agent import WorkflowAgent

REFUSALS: Refusals = {**RUN_REFUSALS, **FLOW_REFUSALS}


def routes_of(  # one argument per service
    server: ServerContext,
    sign_in: SignInApi,
    answers: ChatAnswers,
    workflows: Mapping[str, WorkflowAgent],
    signals: RunSignalsApi,
) -> list[ApiRoute]:
    """Return the console routes of a server with these workflows and sign-in sessions."""
    sections: list[ApiSection] = [
        sign_in,
        TasksApi(server),
        InboxApi(server),
        EventsApi(server.feed),
        ChatApi(server, answers),
        WorkflowsApi(server, workflows, signals),
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
    sign_in = SignInApi(*[nothing] * 8)
    return routes_of(nothing, sign_in, nothing, {}, RunSignalsApi(nothing, nothing))


def openapi_json() -> str:
    """Return the OpenAPI document in the form that the front end stores."""
    routes = placeholder_routes()[:-1]  # the last one describes the others
    document = json.loads(OpenApiEndpoint(routes, VERSION).document)
    return json.dumps(document, indent=2, ensure_ascii=False, sort_keys=True) + "\n"


if __name__ == "__main__":
    sys.stdout.write(openapi_json())
