"""The parts of the console's API, in one list: everything that is answered under `/api/`, but for the registry.

It makes them and knows nothing else of them. `app.console` serves them, `console.description` describes them.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from accord.console.conversations.answers import Answers
from accord.console.conversations.api import ChatApi
from accord.console.describing import Describing
from accord.console.directory.agents import AgentsApi
from accord.console.directory.inspector import InspectorApi
from accord.console.entry.api import SessionApi
from accord.console.entry.door import Door
from accord.console.entry.issuers import IssuersApi
from accord.console.events import EventsApi
from accord.console.flows.api import REFUSALS as FLOW_REFUSALS
from accord.console.flows.api import FlowsApi
from accord.console.flows.runs import REFUSALS as RUN_REFUSALS
from accord.console.flows.runs import RunsApi
from accord.console.house import House
from accord.console.records import RecordsApi
from accord.console.routing import Refusals, Route
from accord.console.tasks.api import TasksApi
from accord.console.tasks.deliveries import DeliveriesApi
from accord.console.tasks.inbox import InboxApi
from accord.workflows.agent import WorkflowAgent

REFUSALS: Refusals = {**RUN_REFUSALS, **FLOW_REFUSALS}


class Part(Protocol):
    """One of them."""

    def routes(self) -> Sequence[Route]:
        """Return what is answered where."""


def routes_of(  # what it is about
    house: House,
    door: Door,
    answers: Answers,
    flows: Mapping[str, WorkflowAgent],
    runs: RunsApi,
    features: Mapping[str, bool],
) -> list[Route]:
    """Return what is answered about a server with these workflows, and where one signs in to it."""
    parts: list[Part] = [
        SessionApi(door, version=house.version, url=house.url, features=features),
        IssuersApi(door, house.url),
        TasksApi(house),
        InboxApi(house),
        EventsApi(house),
        ChatApi(house, answers),
        FlowsApi(house, flows, runs),
        AgentsApi(house),
        InspectorApi(house),
        DeliveriesApi(house),
        RecordsApi(house),
    ]
    routes = [route for part in parts for route in part.routes()]
    return [*routes, *Describing(routes, house.version).routes()]
