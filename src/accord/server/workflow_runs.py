"""Runs of workflows without a server, in a node without a URL.

Runs are in the same store as a server's, and any node that hosts the same document resumes them. Commands and programs
are above.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accord.a2a import Caller
from accord.agents.command_environment import Environment, environment_of_process
from accord.engine.ids import new_id
from accord.engine.subscriptions import at_turn_end
from accord.errors import TaskNotFound
from accord.model import Message, Part, Role, SendConfiguration, SendRequest, Task
from accord.protocol import lifecycle
from accord.server import cards
from accord.server.composition import Composition
from accord.server.grace_period import GracePeriod
from accord.server.settings import Settings
from accord.storage.address import default_address, parse_address
from accord.workflows.agent import WorkflowAgent
from accord.workflows.attempts import INNER
from accord.workflows.document import Document
from accord.workflows.run_request import own_name

if TYPE_CHECKING:
    from accord.client.credentials import Keys
    from accord.service.host import Host
    from accord.workflows import Told


LOCAL_CALLER = Caller(tenant="", owner="")
"""Caller of workflow runs from commands, the same as on a server without authentication."""

NO_URL = ""
"""URL of a node that cannot be called: remote agents are polled, since they cannot report to it."""


def agent_of(
    document: Document,
    *,
    directory: Path,
    env: Mapping[str, str],
    vars: Mapping[str, Any] | None = None,
    name: str | None = None,
    keys: "Keys | None" = None,
) -> WorkflowAgent:
    """Return a document as an agent, under a name of its own unless one is given."""
    own = name or own_name(document, directory, vars or {})
    return WorkflowAgent(document, name=own, directory=directory, env=env, vars=vars, keys=keys)


@asynccontextmanager
async def host_workflow(agent: WorkflowAgent, settings: Settings, env: Mapping[str, str]) -> AsyncIterator["Host"]:
    """Host a workflow and its members during the block. Other nodes continue unfinished runs."""
    address = parse_address(settings.store) if settings.store else default_address(env)
    async with AsyncExitStack() as stack:
        composition = Composition(_node_settings(settings), address, cards.by_slug([agent]), NO_URL, env)
        running = await composition.run(stack, GracePeriod(0.0))  # no caller waits for it when it ends
        yield running.host


def _node_settings(settings: Settings) -> Settings:
    """Return the settings of a server that apply to a node without a URL."""
    return Settings(
        store=settings.store,
        blobs=settings.blobs,
        keep_days=settings.keep_days,
        keep_audit_days=settings.keep_audit_days,
        engine=settings.engine,
        push=settings.push,
        credentials=settings.credentials,
    )


async def start_run(host: "Host", agent: WorkflowAgent, wish: Mapping[str, Any]) -> Task:
    """Start a run, and return its task."""
    message = Message(message_id=new_id(), role=Role.USER, parts=(Part(data=dict(wish)),), metadata={INNER: True})
    request = SendRequest(message=message, configuration=SendConfiguration(return_immediately=True))
    task = await host.services[agent.profile.name].send(request, LOCAL_CALLER)
    assert isinstance(task, Task)  # a workflow never answers with a message alone
    return task


async def follow_run(host: "Host", task_id: str, told: "Told | None" = None) -> Task:
    """Wait until a run has ended or waits for input. Passes each event to `told`, and returns the task."""
    async with host.node.hub.follow(LOCAL_CALLER.tenant, task_id, 0) as follower:
        while True:
            async for event in follower.events(at_turn_end):
                if told is not None:
                    await told(event)
            found = await host.node.task_store.read(LOCAL_CALLER.tenant, task_id)
            if found is None:
                raise TaskNotFound(metadata={"taskId": task_id})
            if found[1].status.state in lifecycle.ENDED | lifecycle.INTERRUPTED:  # not for an answered question
                return found[1]


async def run_document(
    document: Document,
    wish: Mapping[str, Any],
    *,
    directory: Path | None = None,
    on_event: "Told | None" = None,
    settings: Settings | None = None,
    env: Mapping[str, str] | None = None,
) -> Task:
    """Run a document until it ends or waits for input, with the settings of this process."""
    from accord.server.settings_loader import LoadedSettings, load

    found = environment_of_process() if env is None else env
    loaded = load(None, found, {}) if settings is None else LoadedSettings(settings, {})
    chosen, environment = loaded.settings, Environment(found, loaded.referred)
    base = (directory or Path.cwd()).absolute()
    agent = await asyncio.to_thread(agent_of, document, directory=base, env=environment, vars=wish.get("vars"))
    async with host_workflow(agent, chosen, environment) as host:
        task = await start_run(host, agent, wish)
        return await follow_run(host, task.id, on_event)
