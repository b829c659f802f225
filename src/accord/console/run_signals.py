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
from accord.console.routing import ApiReply, ApiRequest, ApiRoute, Refusal, Refusals
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


_decision = msgspec.json.Decoder(Decision)


class RunSignalsApi:
    """Signals and approvals of runs."""

    def __init__(self, handing: RunSignals, roles: Roles, names: Mapping[str, str]) -> None:
        """Deliver signals through `handing`. `names` maps agents to their names in roles."""
        self._handing = handing
        self._roles = roles
        self._names = names

    def routes(self) -> tuple[ApiRoute, ...]:
        """Return the routes."""
        return (
            ApiRoute("POST", f"{RUN}/events/(?P<name>[^/]+)", self.tell, noted="HandInEvent", status=204),
            ApiRoute(
                "POST", f"{RUN}/approvals/(?P<name>[^/]+)", self.decide, noted="Decide", takes=Decision, status=204
            ),
        )

    async def tell(self, asked: ApiRequest) -> ApiReply:
        """Send a signal that a step waits for. The body is any JSON, or empty."""
        value = codec.decode(asked.body, _anything) if asked.body else ""
        await self._handing.tell(await self._found(asked), asked.parts["name"], value)
        return ApiReply(204)

    async def decide(self, asked: ApiRequest) -> ApiReply:
        """Approve or reject a step."""
        said, name = codec.decode(asked.body, _decision), asked.parts["name"]
        found = await self._handing.find(asked.known.tenant, asked.parts["run"])
        if (refusal := self._refusal(asked.known, found, name)) is not None:
            raise refusal
        await self._handing.decide(found, name, approved=said.approved, comment=said.comment)
        return ApiReply(204)

    async def _found(self, asked: ApiRequest) -> StoredRun:
        """Return the requested run. A run of another owner raises the same error as a missing one."""
        found = await self._handing.find(asked.known.tenant, asked.parts["run"])
        if (refusal := self._foreign(asked.known, found)) is not None:
            raise refusal
        return found

    def allows(self, caller: Caller, found: StoredRun, name: str) -> bool:
        """Whether a caller may decide an approval of a run in its tenant."""
        return found.task.agent in self._names and self._refusal(caller, found, name) is None

    def _refusal(self, caller: Caller, found: StoredRun, name: str) -> AccordError | None:
        """Return why a caller may not decide an approval. An approver role of the step includes seeing the run."""
        node = found.state().nodes.get(name)
        step = None if node is None else node.step
        approvers = () if step is None else step.approvers
        if not approvers or caller.roles is None or caller.roles.isdisjoint(approvers):
            foreign = self._foreign(caller, found)
            if foreign is not None or (approvers and caller.roles is not None):
                return foreign or PermissionDenied(f"Deciding {name} takes the role {' or '.join(approvers)}")
        if step is not None and step.not_by_starter and found.task.owner == caller.owner:
            return PermissionDenied(f"The owner of the run may not decide {name}")
        return None

    def _foreign(self, caller: Caller, found: StoredRun) -> AccordError | None:
        """Return why a caller may not send signals to a run."""
        if found.task.owner != caller.owner and not self._sees_all(caller, found):
            return TaskNotFound(f"There is no run {found.task.task_id}")
        if not self._may_send(caller, found):
            return PermissionDenied("Your roles do not include sending to this workflow")
        return None

    def _may_send(self, caller: Caller, found: StoredRun) -> bool:
        if caller.roles is None:
            return True
        right = self._roles.rights(caller.roles, self._name(found)).get(Operation.SEND)
        return right is not None and right.has_skill(found.plan.workflow)

    def _sees_all(self, caller: Caller, found: StoredRun) -> bool:
        """Whether a caller may cancel runs of other owners, and so may also decide their approvals."""
        if caller.roles is None:
            return caller.sees_all
        right = self._roles.rights(caller.roles, self._name(found)).get(Operation.CANCEL)
        return right is not None and right.sees_all

    def _name(self, found: StoredRun) -> str:
        return self._names[found.task.agent]


_anything: "msgspec.json.Decoder[object]" = msgspec.json.Decoder()


# --- signals by URL token ---------------------------------------------------------------------------------------------


class EventUrlHolder(ReportSender, frozen=True, kw_only=True):
    """A sender with a valid event token."""

    shown: EventToken

    @property
    def is_known(self) -> bool:
        """Whether a valid token was sent: always true."""
        return True


class EventUrls:
    """Accepts signals at the URLs that runs gave out."""

    def __init__(self, handing: RunSignals) -> None:
        """Deliver signals through `handing`."""
        self._handing = handing

    async def admit(self, evidence: ReportCredentials) -> ReportSender:
        """Authenticate a sender by its token, before the body is read."""
        shown = EventToken.read(evidence.token or "")
        if shown is None or not await self._handing.is_shown(shown):
            raise unauthenticated()
        return EventUrlHolder(evidence=evidence, tenant=shown.tenant, shown=shown)

    async def take(self, sender: ReportSender, body: bytes) -> None:
        """Deliver the body as a signal: as JSON if it is valid JSON, else as text."""
        assert isinstance(sender, EventUrlHolder)  # it was admitted here
        shown = sender.shown
        try:
            value = msgspec.json.decode(body) if body else ""
        except msgspec.DecodeError:
            value = body.decode(errors="replace")
        try:
            await self._handing.tell(await self._handing.find(shown.tenant, shown.run), shown.event, value)
        except NotWaiting as error:
            raise TaskNotFound(str(error)) from None
