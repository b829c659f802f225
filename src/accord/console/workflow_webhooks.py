"""`POST /hooks/NAME/PATH`: webhooks that start runs of workflows.

Senders sign requests to a webhook with a secret. Any other webhook needs a caller of the server. A signed delivery is
stored with its run, so a duplicate starts no second run.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from accord.a2a import A2A, Caller
from accord.api import Store, StoreUnavailable, storage
from accord.api.access import Bucket, Quotas
from accord.console import HOOKS
from accord.errors import AccordError, AgentUnavailable, InternalError, PermissionDenied, RateLimited, TaskNotFound
from accord.http.asgi import JSON, Admit, Receive, Scope, Send, check_head, error_headers, header, presented, respond
from accord.http.request_bodies import identify_nobody, read_request
from accord.http.response_bodies import ClientGone
from accord.model import Message, SendConfiguration, SendRequest, Task
from accord.workflows import triggers
from accord.workflows.document import Document, Hook

RATE, BURST = 50.0, 200
"""Requests per second of one address, with or without a valid signature: verifying costs a digest of a whole body."""

CLAIM_SECONDS = 60
"""Seconds for which a request claims a delivery while it starts the run. Another node may claim it after that."""

KEPT_SECONDS = 24 * 3600
"""Seconds for which a delivery with a signed timestamp is remembered: longer than any tolerance."""

SCHEME = "hook"
"""Scheme of signed webhooks in the audit log."""

log = logging.getLogger("accord.hooks")

Headers = Mapping[str, str]


class HookedWorkflow(NamedTuple):
    """A served workflow with webhooks: its document, its agent, and the secrets that webhooks name.

    `fixed` are the inputs that settings give to all of its runs.
    """

    document: Document
    agent: A2A
    secrets: Mapping[str, str]
    fixed: Mapping[str, Any]


class WorkflowWebhooks:
    """An ASGI application for all webhooks of a server."""

    def __init__(
        self,
        flows: Mapping[str, HookedWorkflow],
        *,
        admit: Admit,
        quotas: Quotas,
        store: Store,
        now_ms: Callable[[], int],
        tolerance_seconds: int,
        remember_days: float,
    ) -> None:
        """Start runs of `flows`, by the name in their path."""
        self._store = store
        self._now_ms = now_ms
        self._tolerance = tolerance_seconds
        kept = {"timestamp": KEPT_SECONDS, "github": remember_days * 86_400}
        self._kept_ms = {kind: round(seconds * 1000) for kind, seconds in kept.items()}
        self._flows = flows
        self._admit = admit
        self._quotas = quotas
        self._bucket = Bucket(RATE, BURST)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["method"] != "POST":
            await respond(send, 405, b"", [(b"allow", b"POST")])
            return
        try:
            name, run = await self._begin(scope, receive)
            said = [(b"cache-control", b"no-store")]
            await respond(send, 202, msgspec.json.encode({"run": run, "agent": name}), [*JSON, *said])
        except ClientGone:
            return
        except Exception as error:
            if not isinstance(error, AccordError):
                log.error("trigger.failed", exc_info=error, extra={"path": scope["path"]})
            known = error if isinstance(error, AccordError) else InternalError()
            body = msgspec.json.encode({"detail": known.message})
            await respond(send, known.row.http, body, [*JSON, *error_headers(known)])

    async def _begin(self, scope: Scope, receive: Receive) -> tuple[str, str]:
        check_head(scope, self._quotas)
        peer = scope.get("client")
        if wait := self._bucket.take(peer[0] if peer else ""):
            raise RateLimited("Too many calls from one address", retry_after=max(1, round(wait)))
        path = scope["path"].removeprefix(scope.get("root_path", "")).removeprefix(HOOKS)
        name, _, rest = path.partition("/")
        flow = self._flows.get(name)
        hook = None if flow is None else triggers.hook_at(flow.document, rest)
        if flow is None or hook is None:
            raise TaskNotFound("There is no such webhook")
        if hook.secret is None and header(scope, b"origin") is not None:
            # A page of any origin can make its reader's browser send this (CSRF). Senders of webhooks are not pages.
            raise PermissionDenied("Webhooks are not for pages")
        identify = self._admit if hook.secret is None else identify_nobody
        caller, body = await read_request(scope, receive, identify, self._quotas)
        called = triggers.WebhookCall(presented(scope, body).target, _headers(scope), body)
        if hook.secret is None:
            caller = caller or await self._admit(presented(scope, body))
            named = triggers.delivery_named(called.headers)
            return name, await self._sent(
                flow, triggers.webhook_message(flow.document, hook, called, named, flow.fixed), caller
            )
        now = self._now_ms() // 1000
        delivery = triggers.verify_webhook(hook, flow.secrets[hook.secret], called, now, self._tolerance)
        asked = triggers.webhook_message(flow.document, hook, called, delivery, flow.fixed)
        caller = Caller(scheme=SCHEME, peer=peer[0] if peer else None)
        return name, await self._once(f"{name}/{hook.path.strip('/')} {delivery}", hook, flow, asked, caller)

    async def _once(self, delivery: str, hook: Hook, flow: HookedWorkflow, asked: Message, caller: Caller) -> str:
        """Start the run of a signed delivery, or return the run of its first delivery."""
        try:
            run = await storage.claim_signed_delivery(self._store, delivery, CLAIM_SECONDS * 1000)
            if run is None:
                run = await self._sent(flow, asked, caller)
                await storage.put_delivery_run(self._store, delivery, run, self._kept_ms[hook.signature])
        except StoreUnavailable as error:
            raise AgentUnavailable("Deliveries cannot be checked at the moment", retry_after=1) from error
        if not run:
            raise AgentUnavailable("This delivery is being worked on", retry_after=1)
        return run

    async def _sent(self, flow: HookedWorkflow, asked: Message, caller: Caller) -> str:
        request = SendRequest(message=asked, configuration=SendConfiguration(return_immediately=True))
        task = await flow.agent.send(request, caller)
        assert isinstance(task, Task)  # a workflow never answers with a message alone
        return task.id


def _headers(scope: Scope) -> Headers:
    """Return the headers of a request without credentials."""
    found = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    return {name: value for name, value in found.items() if name not in _SECRET}


_SECRET = frozenset({"authorization", "cookie", "proxy-authorization", "x-api-key"})
