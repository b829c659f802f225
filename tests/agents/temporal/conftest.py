"""A real Temporal server, a real worker, and agents whose tasks are its workflows."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from accord.agents.temporal import workflow_agent
from accord.agents.temporal.agent import TemporalAgent
from tests.agents.temporal.server import running_server
from tests.agents.temporal.workflows import QUEUE, WORKFLOWS, beat, look_up

START_SECONDS = 60
"""How long a server may take to be ready."""


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    """The address of a server of this test process."""
    with running_server() as found:
        yield found


@pytest.fixture
async def temporal(address: str) -> Client:
    """Temporal, as the user who owns the workflows sees it."""
    async with asyncio.timeout(START_SECONDS):
        while True:
            try:
                return await Client.connect(address)
            except RuntimeError:  # it listens before it is ready
                await asyncio.sleep(0.1)


@pytest.fixture
async def worker(temporal: Client) -> AsyncIterator[Worker]:
    """What runs the workflows."""
    often = timedelta(milliseconds=100)
    activities = [look_up, beat]
    async with Worker(
        temporal,
        task_queue=QUEUE,
        workflows=WORKFLOWS,
        activities=activities,
        default_heartbeat_throttle_interval=often,
        max_heartbeat_throttle_interval=often,
    ) as running:
        yield running


def agent_of(address: str, workflow: str, **options: Any) -> TemporalAgent:
    return workflow_agent(workflow, QUEUE, name=workflow.lower(), **{"address": address, **options})
