"""Signals and approvals of runs over HTTP.

A signal also arrives at an address that the run gave out: `/api/events?token=...`.
"""

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from accord.a2a import Caller
from accord.api.access import Roles
from accord.api.remote import ReportCredentials, ReportSender, unauthenticated
from accord.console import RUNS
from accord.console.routing import ApiRequest, ApiSection, Refusal, Refusals, route
from accord.errors import AccordError, PermissionDenied, TaskNotFound
from accord.protocol import codec
from accord.protocol.operations import Operation
from accord.workflows.signals import EventToken, NotWaiting, RunSignals
from accord.workflows.stored_run import StoredRun

REFUSALS: Refusals = {NotWaiting: Refusal(409, "NOT_WAITING")}

RUN = f"{RUNS}(?P<run>[0-9A-Za-z-]{{1,64}})"


class Decision(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The decision about an approval."""

    approved: bool
    comment: str = ""


class RunSignalsApi(ApiSection):
    """Signals and approvals of runs."""

    def __init__(self, signals: RunSignals, roles: Roles, names: Mapping[str, str]) -> None:
        """Deliver signals through `signals`. `names` maps agents to their names in roles."""
        self._signals = signals
        self._roles = roles
        self._names = names

    @route("POST", f"{RUN}/events/(?P<name>[^/]+)", noted="HandInEvent", status=204)
    async def send(self, request: ApiRequest) -> None:
        """Send a signal that a step waits for. The body is any JSON, or empty."""
        value = codec.decode(request.body, _json) if request.body else ""
        run = await self._signals.find(request.caller.tenant, request.parts["run"])
        if (refusal := self._run_refusal(request.caller, run)) is not None:
            raise refusal
        await self._signals.tell(run, request.parts["name"], value)

    @route("POST", f"{RUN}/approvals/(?P<name>[^/]+)", noted="Decide", status=204)
    async def decide(self, request: ApiRequest, body: Decision) -> None:
        """Approve or reject a step."""
        name = request.parts["name"]
        run = await self._signals.find(request.caller.tenant, request.parts["run"])
        if (refusal := self._approval_refusal(request.caller, run, name)) is not None:
            raise refusal
        await self._signals.decide(run, name, approved=body.approved, comment=body.comment)

    def allows(self, caller: Caller, run: StoredRun, name: str) -> bool:
        """Whether a caller may decide an approval of a run in its tenant."""
        return run.task.agent in self._names and self._approval_refusal(caller, run, name) is None

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
        if run.task.owner != caller.owner and not self._sees_all(caller, run):
            return TaskNotFound(f"There is no run {run.task.task_id}")
        if not self._may_send(caller, run):
            return PermissionDenied("Your roles do not include sending to this workflow")
        return None

    def _may_send(self, caller: Caller, run: StoredRun) -> bool:
        if caller.roles is None:
            return True
        right = self._roles.rights(caller.roles, self._name(run)).get(Operation.SEND)
        return right is not None and right.has_skill(run.plan.workflow)

    def _sees_all(self, caller: Caller, run: StoredRun) -> bool:
        """Whether a caller may cancel runs of other owners, and so may also decide their approvals."""
        if caller.roles is None:
            return caller.sees_all
        right = self._roles.rights(caller.roles, self._name(run)).get(Operation.CANCEL)
        return right is not None and right.sees_all

    def _name(self, run: StoredRun) -> str:
        return self._names[run.task.agent]


_json: "msgspec.json.Decoder[object]" = msgspec.json.Decoder()


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

    async def take(self, sender: ReportSender, body: bytes) -> None:
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
