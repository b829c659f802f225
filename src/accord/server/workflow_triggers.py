"""Triggers of served workflows: schedules, webhooks, signals and approvals.

They start runs and resume them. A server without a workflow never loads this module.
"""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from accord.a2a import A2A, Caller
from accord.auth.roles import Roles
from accord.client.credentials import Credential
from accord.console import HOOKS, RUNS
from accord.console.run_endpoints import REFUSALS, EventUrls, HookedWorkflow, RunSignalsApi, WorkflowWebhooks
from accord.console.views import TaskVisibility
from accord.engine.agent import Agent
from accord.http.asgi import App
from accord.http.webhooks import WebhookEndpoint, query_credentials
from accord.model import Message, SendConfiguration, SendRequest
from accord.server.agents import RedescribedAgent
from accord.server.registry import Gates
from accord.server.settings import Settings
from accord.server.settings_loader import BadSettings
from accord.service.host import Host
from accord.service.service import Service
from accord.workflows.agent import WorkflowAgent
from accord.workflows.document import Hook, Schedule
from accord.workflows.signals import ADDRESS, RunSignals
from accord.workflows.triggers import Timetable, standard_key

SCHEDULE_CALLER = Caller()
"""Caller of scheduled runs: they belong to the server itself."""


class WorkflowTriggers:
    """The triggers of a server's workflows."""

    def __init__(self, agents: Mapping[str, Agent], host: Host, settings: Settings) -> None:
        """Find the workflows in `agents`, by the name in their path. `host` runs their tasks."""
        self._flows = flows_of(agents)
        self._host = host
        self._settings = settings

    def start(self, stack: AsyncExitStack) -> None:
        """Start runs by schedule, until the stack is left."""
        for name, flow in self._flows.items():
            if not schedules_of(flow):
                continue
            begin = partial(_start_run, self._host.services[flow.profile.name])
            store = self._host.node.store
            now_ms = self._host.node.now_ms
            timetable = Timetable(flow.profile.name, schedules_of(flow), store, begin, now_ms=now_ms)
            task = asyncio.create_task(timetable.run(), name=f"schedules of {name}")
            stack.push_async_callback(_cancel_task, task)

    async def pages(
        self, guarded: Mapping[str, A2A], roles: Roles, gates: Gates, env: Mapping[str, str]
    ) -> dict[str, App]:
        """Return the endpoints of webhooks, signals and approvals, by path prefix."""
        if not self._flows:
            return {}
        handing = signals_of(self._flows, self._host)
        api = runs_of(self._flows, self._host, roles)
        limits: dict[str, Any] = {"quotas": self._settings.limits, "rate": self._settings.receiver.rate}
        return {
            HOOKS: await self._hooks(guarded, gates, env),
            ADDRESS: WebhookEndpoint(EventUrls(handing), reads=query_credentials, **limits),
            RUNS: gates.api(api.routes(), REFUSALS),
        }

    async def _hooks(self, guarded: Mapping[str, A2A], gates: Gates, env: Mapping[str, str]) -> App:
        named = {(name, hook.secret) for name, flow in self._flows.items() for hook in hooks_of(flow) if hook.secret}
        secrets: dict[str, str] = {}
        keys = None
        if named:  # importing credentials takes as long as all the rest of a start
            from accord.server.credentials import own_keys

            keys = await own_keys(self._settings, env)
        for name, secret in sorted(named):
            found = None if keys is None else _secret(keys.find(secret))
            if found is None:
                what = f"a webhook of it is signed with the credential {secret}, which has no secret or is not there"
                raise BadSettings(f"The workflow {name} cannot be served: {what} (accord creds set {secret})")
            try:
                standard_key(found)
            except ValueError as error:
                what = f"the credential {secret} begins with whsec_ and is not base64 after it"
                raise BadSettings(f"The workflow {name} cannot be served: {what}") from error
            secrets[secret] = found
        flows = {
            name: HookedWorkflow(flow.document, guarded[name], secrets, self._fixed(flow))
            for name, flow in self._flows.items()
        }
        node, hooks = self._host.node, self._settings.hooks
        return WorkflowWebhooks(
            flows,
            admit=gates.admit,
            quotas=self._settings.limits,
            store=node.store,
            now_ms=node.now_ms,
            tolerance_seconds=hooks.tolerance_seconds,
            remember_days=hooks.remember_days,
        )

    def _fixed(self, flow: WorkflowAgent) -> Mapping[str, Any]:
        """Return the inputs that settings give to all runs of a workflow."""
        table = self._settings.agents.get(flow.profile.name)
        found: Mapping[str, Any] = table.get("vars", {}) if isinstance(table, dict) else {}
        return found


def flows_of(agents: Mapping[str, Agent]) -> dict[str, WorkflowAgent]:
    """Return the workflows among agents."""
    return {name: flow for name, agent in agents.items() if (flow := flow_of(agent)) is not None}


def runs_of(flows: Mapping[str, WorkflowAgent], host: Host, roles: Roles) -> RunSignalsApi:
    """Return the API for signals and approvals of runs, with authorization by roles."""
    return RunSignalsApi(signals_of(flows, host), TaskVisibility(roles, _names(flows)))


def signals_of(flows: Mapping[str, WorkflowAgent], host: Host) -> RunSignals:
    """Return the delivery of signals to runs of workflows."""
    return RunSignals(host.node.store, host.default.wake, _names(flows))


def _names(flows: Mapping[str, WorkflowAgent]) -> dict[str, str]:
    """Return the path names of workflows, and of the workflows among their members, by their own names."""
    found: dict[str, str] = {}
    for name, flow in flows.items():
        inner = [one.profile.name for one in flow.members.values() if isinstance(one, WorkflowAgent)]
        found |= dict.fromkeys((flow.profile.name, *inner), name)
    return found


def flow_of(agent: Agent) -> WorkflowAgent | None:
    """Return the workflow of an agent, if it is one."""
    found = agent.agent if isinstance(agent, RedescribedAgent) else agent
    return found if isinstance(found, WorkflowAgent) else None


def schedules_of(flow: WorkflowAgent) -> tuple[Schedule, ...]:
    """Return the schedules of a workflow."""
    return flow.document.on.schedule if flow.document.on is not None else ()


def hooks_of(flow: WorkflowAgent) -> tuple[Hook, ...]:
    """Return the webhooks of a workflow."""
    return flow.document.on.webhook if flow.document.on is not None else ()


def _secret(credential: Credential | None) -> str | None:
    if credential is None:
        return None
    return (credential.hmac.secret if credential.hmac else None) or credential.api_key or credential.bearer


async def _start_run(service: Service, message: Message) -> None:
    request = SendRequest(message=message, configuration=SendConfiguration(return_immediately=True))
    await service.send(request, SCHEDULE_CALLER)


async def _cancel_task(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
