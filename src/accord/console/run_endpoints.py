"""Signals, approvals and webhooks of workflow runs over HTTP.

A signal also arrives at an address that the run gave out: `/api/events?token=...`. Webhooks at `/hooks/NAME/PATH` start
runs. Senders sign requests to a webhook with a secret. Any other webhook needs a caller of the server. A signed
delivery is stored with its run, so a duplicate starts no second run.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from accord.a2a import A2A, Caller
from accord.api import Store, StoreUnavailable, storage
from accord.api.access import Bucket, Quotas
from accord.api.remote import ReportCredentials, ReportSender, unauthenticated
from accord.console import HOOKS, RUNS
from accord.console.routing import ApiRequest, ApiSection, Refusal, Refusals, route
from accord.console.views import NO_SLUG, TaskVisibility
from accord.errors import AccordError, AgentUnavailable, InternalError, PermissionDenied, RateLimited, TaskNotFound
from accord.http.asgi import JSON, Admit, Receive, Scope, Send, check_head, error_headers, header, presented, respond
from accord.http.request_bodies import identify_nobody, read_request
from accord.http.response_bodies import ClientGone
from accord.model import Message, SendConfiguration, SendRequest, Task
from accord.protocol import codec
from accord.protocol.operations import Operation
from accord.workflows import triggers
from accord.workflows.document import Document, Hook
from accord.workflows.signals import EventToken, NotWaiting, RunSignals
from accord.workflows.stored_run import StoredRun

REFUSALS: Refusals = {NotWaiting: Refusal(409, "NOT_WAITING")}

RUN = f"{RUNS}(?P<run>[0-9A-Za-z-]{{1,64}})"


class Decision(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The decision about an approval."""

    approved: bool
    comment: str = ""


_json: "msgspec.json.Decoder[object]" = msgspec.json.Decoder()


class RunSignalsApi(ApiSection):
    """Signals and approvals of runs."""

    def __init__(self, signals: RunSignals, visibility: TaskVisibility) -> None:
        """Deliver signals through `signals`. `visibility` knows the served workflows only."""
        self._signals = signals
        self._visibility = visibility

    @route("POST", f"{RUN}/events/(?P<name>[^/]+)", audited="HandInEvent", status=204)
    async def send(self, request: ApiRequest) -> None:
        """Send a signal that a step waits for. The body is any JSON, or empty."""
        value = codec.decode(request.body, _json) if request.body else ""
        run = await self._signals.find(request.caller.tenant, request.parts["run"])
        if (refusal := self._run_refusal(request.caller, run)) is not None:
            raise refusal
        await self._signals.tell(run, request.parts["name"], value)

    @route("POST", f"{RUN}/approvals/(?P<name>[^/]+)", audited="Decide", status=204)
    async def decide(self, request: ApiRequest, body: Decision) -> None:
        """Approve or reject a step."""
        name = request.parts["name"]
        run = await self._signals.find(request.caller.tenant, request.parts["run"])
        if (refusal := self._approval_refusal(request.caller, run, name)) is not None:
            raise refusal
        await self._signals.decide(run, name, approved=body.approved, comment=body.comment)

    def allows(self, caller: Caller, run: StoredRun, name: str) -> bool:
        """Whether a caller may decide an approval of a run in its tenant."""
        is_served = self._visibility.slug(run.task.agent) != NO_SLUG
        return is_served and self._approval_refusal(caller, run, name) is None

    def _approval_refusal(self, caller: Caller, run: StoredRun, name: str) -> AccordError | None:
        """Return why a caller may not decide an approval. An approver role of the step includes seeing the run."""
        node = run.state().nodes.get(name)
        step = None if node is None else node.step
        approvers = () if step is None else step.approvers
        if not approvers or caller.roles is None or caller.roles.isdisjoint(approvers):
            refusal = self._run_refusal(caller, run)
            if refusal is not None or (approvers and caller.roles is not None):
                return refusal or PermissionDenied(f"Deciding {name} takes the role {' or '.join(approvers)}")
        if step is not None and step.not_by_starter and run.task.owner == caller.owner:
            return PermissionDenied(f"The owner of the run may not decide {name}")
        return None

    def _run_refusal(self, caller: Caller, run: StoredRun) -> AccordError | None:
        """Return why a caller may not send signals to a run."""
        task = run.task
        # Callers who may cancel runs of other owners may also decide their approvals.
        visible = self._visibility.visible_tasks(caller, Operation.CANCEL)
        if task.owner != caller.owner and not visible.sees(task.agent, task.owner):
            return TaskNotFound(f"There is no run {task.task_id}")
        if not self._visibility.allows(caller, task.agent, Operation.SEND, run.plan.workflow):
            return PermissionDenied("Your roles do not include sending to this workflow")
        return None


# --- signals by URL token ---------------------------------------------------------------------------------------------


class EventUrlHolder(ReportSender, frozen=True, kw_only=True):
    """A sender with a valid event token."""

    token: EventToken

    @property
    def is_known(self) -> bool:
        """Whether a valid token was sent: always true."""
        return True


class EventUrls:
    """Accepts signals at the URLs that runs gave out."""

    def __init__(self, signals: RunSignals) -> None:
        """Deliver signals through `signals`."""
        self._signals = signals

    async def admit(self, evidence: ReportCredentials) -> ReportSender:
        """Authenticate a sender by its token, before the body is read."""
        token = EventToken.read(evidence.token or "")
        if token is None or not await self._signals.is_shown(token):
            raise unauthenticated()
        return EventUrlHolder(evidence=evidence, tenant=token.tenant, token=token)

    async def accept(self, sender: ReportSender, body: bytes) -> None:
        """Deliver the body as a signal: as JSON if it is valid JSON, else as text."""
        assert isinstance(sender, EventUrlHolder)  # it was admitted here
        token = sender.token
        try:
            value = msgspec.json.decode(body) if body else ""
        except msgspec.DecodeError:
            value = body.decode(errors="replace")
        try:
            await self._signals.tell(await self._signals.find(token.tenant, token.run), token.event, value)
        except NotWaiting as error:
            raise TaskNotFound(str(error)) from None


# --- webhooks ---------------------------------------------------------------------------------------------------------

RATE, BURST = 50.0, 200
"""Requests per second of one address, with or without a valid signature: verifying costs a digest of a whole body."""

CLAIM_SECONDS = 60
"""Seconds for which a request claims a delivery while it starts the run. Another node may claim it after that."""

KEPT_SECONDS = 24 * 3600
"""Seconds for which a delivery with a signed timestamp is remembered: longer than any tolerance."""

SCHEME = "hook"
"""Scheme of signed webhooks in the audit log."""

log = logging.getLogger("accord.hooks")


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
        workflows: Mapping[str, HookedWorkflow],
        *,
        admit: Admit,
        quotas: Quotas,
        store: Store,
        now_ms: Callable[[], int],
        tolerance_seconds: int,
        remember_days: float,
    ) -> None:
        """Start runs of `workflows`, by the name in their path."""
        self._store = store
        self._now_ms = now_ms
        self._tolerance = tolerance_seconds
        memory_seconds = {"timestamp": KEPT_SECONDS, "github": remember_days * 86_400}
        self._memory_ms = {kind: round(seconds * 1000) for kind, seconds in memory_seconds.items()}
        self._workflows = workflows
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
            headers = [(b"cache-control", b"no-store")]
            await respond(send, 202, msgspec.json.encode({"run": run, "agent": name}), [*JSON, *headers])
        except ClientGone:
            return
        except Exception as error:
            if not isinstance(error, AccordError):
                log.error("trigger.failed", exc_info=error, extra={"path": scope["path"]})
            shown = error if isinstance(error, AccordError) else InternalError()
            body = msgspec.json.encode({"detail": shown.message})
            await respond(send, shown.row.http, body, [*JSON, *error_headers(shown)])

    async def _begin(self, scope: Scope, receive: Receive) -> tuple[str, str]:
        check_head(scope, self._quotas)
        peer = scope.get("client")
        if wait := self._bucket.take(peer[0] if peer else ""):
            raise RateLimited("Too many calls from one address", retry_after=max(1, round(wait)))
        path = scope["path"].removeprefix(scope.get("root_path", "")).removeprefix(HOOKS)
        name, _, rest = path.partition("/")
        workflow = self._workflows.get(name)
        hook = None if workflow is None else triggers.hook_at(workflow.document, rest)
        if workflow is None or hook is None:
            raise TaskNotFound("There is no such webhook")
        if hook.secret is None and header(scope, b"origin") is not None:
            # A page of any origin can make its reader's browser send this (CSRF). Senders of webhooks are not pages.
            raise PermissionDenied("Webhooks cannot be called from a browser page")
        identify = self._admit if hook.secret is None else identify_nobody
        caller, body = await read_request(scope, receive, identify, self._quotas)
        call = triggers.WebhookCall(presented(scope, body).target, _headers(scope), body)
        if hook.secret is None:
            caller = caller or await self._admit(presented(scope, body))
            named = triggers.delivery_named(call.headers)
            return name, await self._send(
                workflow, triggers.webhook_message(workflow.document, hook, call, named, workflow.fixed), caller
            )
        now = self._now_ms() // 1000
        delivery = triggers.verify_webhook(hook, workflow.secrets[hook.secret], call, now, self._tolerance)
        message = triggers.webhook_message(workflow.document, hook, call, delivery, workflow.fixed)
        caller = Caller(scheme=SCHEME, peer=peer[0] if peer else None)
        return name, await self._once(f"{name}/{hook.path.strip('/')} {delivery}", hook, workflow, message, caller)

    async def _once(self, delivery: str, hook: Hook, workflow: HookedWorkflow, message: Message, caller: Caller) -> str:
        """Start the run of a signed delivery, or return the run of its first delivery."""
        try:
            run = await storage.claim_signed_delivery(self._store, delivery, CLAIM_SECONDS * 1000)
            if run is None:
                run = await self._send(workflow, message, caller)
                await storage.put_delivery_run(self._store, delivery, run, self._memory_ms[hook.signature])
        except StoreUnavailable as error:
            raise AgentUnavailable("Deliveries cannot be checked at the moment", retry_after=1) from error
        if not run:
            raise AgentUnavailable("Another request is starting the run of this delivery", retry_after=1)
        return run

    async def _send(self, workflow: HookedWorkflow, message: Message, caller: Caller) -> str:
        request = SendRequest(message=message, configuration=SendConfiguration(return_immediately=True))
        task = await workflow.agent.send(request, caller)
        assert isinstance(task, Task)  # a workflow never answers with a message alone
        return task.id


def _headers(scope: Scope) -> Mapping[str, str]:
    """Return the headers of a request without credentials."""
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    return {name: value for name, value in headers.items() if name not in _SECRET}


_SECRET = frozenset({"authorization", "cookie", "proxy-authorization", "x-api-key"})
