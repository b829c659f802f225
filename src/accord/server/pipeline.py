"""The way of a call through a server: the middleware in front of a service, and authentication before it."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from accord.a2a import A2A, Handler, HostedAgent, handler_of
from accord.auth.audit import Audit, watched
from accord.auth.authentication import Access, OpenStreams
from accord.auth.rate_limits import CallerUsage
from accord.auth.roles import Roles
from accord.http.asgi import Admit
from accord.model import AgentInterface
from accord.service.middleware import (
    AuditObserver,
    Authorization,
    CallLimits,
    CallObserver,
    Observed,
    PlacedCard,
    RateLimiter,
)
from accord.service.service import Offers
from accord.service.storage_quotas import StorageQuotas
from accord.telemetry.metrics import Metrics, MetricsObserver

if TYPE_CHECKING:
    from accord.telemetry.tracing import Tracing

Step = Callable[[Handler], Handler]


def pipeline(  # noqa: PLR0913  # one for each part
    service: A2A | Handler,
    agent: str,
    *,
    label: str | None = None,
    roles: Roles | None = None,
    access: Access | None = None,
    usage: CallerUsage | None = None,
    storage: StorageQuotas | None = None,
    required: frozenset[str] = frozenset(),
    streams: OpenStreams | None = None,
    audit: Audit | None = None,
    metrics: Metrics | None = None,
    tracing: "Tracing | None" = None,
) -> HostedAgent:
    """Return the service of the agent with that name behind its middleware.

    `label` is its name in metrics and traces, if it is another. `required` are the extensions that the agent's card
    requires. The other parts are shared by the agents of a server.
    """
    usage = usage or CallerUsage()
    quotas, observers = usage.quotas, _observers(agent, label or agent, metrics, audit)
    authorization: dict[str, Any] = {"access": access, "required": required, "streams": streams}
    outermost_first: list[Step | None] = [
        None if tracing is None else partial(tracing.middleware, agent=label or agent),
        partial(Observed, observers=observers) if observers else None,
        partial(RateLimiter, usage=usage) if quotas.rate or quotas.open_rate else None,
        partial(Authorization, agent=agent, roles=roles or Roles(), identifier=quotas.identifier, **authorization),
        partial(CallLimits, usage=usage, storage=storage),
    ]
    handler = handler_of(service)
    for step in filter(None, reversed(outermost_first)):
        handler = step(handler)
    return HostedAgent(handler)


def _observers(agent: str, label: str, metrics: Metrics | None, audit: Audit | None) -> list[CallObserver]:
    observers: list[CallObserver] = []
    if metrics is not None:
        observers.append(MetricsObserver(metrics, label))
    if audit is not None and audit.is_on:
        observers.append(AuditObserver(audit, agent))
    return observers


def at_place(agent: HostedAgent, interfaces: tuple[AgentInterface, ...], offers: Offers) -> HostedAgent:
    """Return an agent whose extended card names the interfaces of one place."""
    return HostedAgent(PlacedCard(agent, interfaces)) if offers.extended_card else agent


def authentication(
    access: Access, audit: Audit, metrics: Metrics | None = None, tracing: "Tracing | None" = None
) -> Admit:
    """Return the authentication of requests, which comes before their call is decoded."""
    admit: Admit = access.admit
    if access.schemes:
        admit = watched(admit, audit)
        admit = admit if metrics is None else metrics.watched(admit)
    return admit if tracing is None else tracing.watched(admit)
